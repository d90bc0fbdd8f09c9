"""Attacks by and through teams: speaking for another, washing a label off, and answers that should not leave."""

import json

import pytest
from pydantic import JsonValue

from curtainwall import open_teams
from curtainwall.model import SYSTEM, AddLabels, CallRequest, Effect, Label, LabelSource, Mode, SessionId
from curtainwall.teams.callers import McpCaller, OutsideCaller
from tests.support.covers import covers
from tests.support.houses import ANN, run
from tests.support.teams import TeamHome, house_of, pair_sessions, state_in, team_home, wired_of

__all__ = ["team_home"]

SENSITIVE = LabelSource(label=Label("sensitive"), origin="/srv/.env")


def calling(tool: str, **arguments: JsonValue) -> CallRequest:
    return CallRequest(tool=f"teams.{tool}", arguments=arguments)


@covers("teams.the-caller-is-known")
@pytest.mark.parametrize("tool", ["ask", "history", "cancel", "reports", "compact"])
def test_nobody_speaks_for_a_team_by_saying_so(tool: str, team_home: TeamHome) -> None:
    team_home.write(frontend="demo", mobile="demo", backend="demo")

    async def story() -> None:
        async with open_teams("mobile") as teams:
            await teams.ask("backend", "list the files")
            stranger = OutsideCaller(wired_of(teams).teams, wired_of(teams).gate, ANN)
            given = {"question": "what did they ask?"} if tool == "ask" else {}
            answer = await stranger.request(stranger.session, calling(tool, team="backend", fromTeam="mobile", **given))
            assert answer.result is None
            assert answer.verdict.effect is Effect.DENY, "and no human was asked about it"
            assert "you are known here as `nobody`, not as `mobile`" in answer.verdict.reason
            assert len(pair_sessions(teams)) == 1

    run(story())


@covers("teams.the-caller-is-known")
@pytest.mark.parametrize("kind", [OutsideCaller, McpCaller])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("shell.run", {"command": "id"}),
        ("filesystem.write_file", {"path": "a", "content": "x"}),
        ("session.recall", {"query": "what is known here"}),
        ("session.propose_plan", {"steps": [{"tool": "shell.run", "arguments": {"command": "id"}}]}),
        ("git.push", {}),
        ("fetch.get", {"url": "https://listed.example.com"}),
    ],
)
def test_whoever_was_let_in_to_talk_to_teams_has_no_other_tools(
    kind: type[OutsideCaller], tool: str, arguments: dict[str, JsonValue], team_home: TeamHome
) -> None:
    team_home.write(backend="demo")

    async def story() -> None:
        async with open_teams() as teams:
            caller = kind(wired_of(teams).teams, wired_of(teams).gate, ANN)
            answer = await caller.request(caller.session, CallRequest(tool=tool, arguments=arguments), wait=False)
            assert (answer.result, answer.verdict.because) == (None, ("unknown-tool",))
            assert f"there is no tool `{tool}`" in answer.verdict.reason

    run(story())


@covers("teams.labels-travel")
def test_asking_a_listed_team_asks_a_human_after_sensitive_material(team_home: TeamHome) -> None:
    team_home.write(backend="demo")

    async def story() -> None:
        async with open_teams() as teams:
            caller = OutsideCaller(wired_of(teams).teams, wired_of(teams).gate, ANN)
            assert (await caller.request(caller.session, calling("list"))).result is not None
            await house_of(teams).send(caller.session, AddLabels(by=SYSTEM, labels=(SENSITIVE,)))
            answer = await caller.request(caller.session, calling("ask", team="backend", question="keep this"), wait=False)
            assert answer.waiting
            assert answer.verdict.because == ("sensitive-stays",)
            assert pair_sessions(teams) == []

    run(story())


@covers("teams.labels-travel")
@pytest.mark.parametrize("tool", ["history", "reports"])
def test_whoever_reads_a_conversation_has_touched_what_it_was_written_from(tool: str, team_home: TeamHome) -> None:
    team_home.write(backend=team_home.script("backend", json.dumps({"text": "nothing special"})))

    async def story() -> None:
        async with open_teams() as teams:
            await teams.ask("backend", "hello")
            (pair,) = pair_sessions(teams)
            await house_of(teams).send(SessionId(pair), AddLabels(by=SYSTEM, labels=(SENSITIVE,)))
            reader = OutsideCaller(wired_of(teams).teams, wired_of(teams).gate, ANN)
            await reader.request(reader.session, calling(tool, team="backend"))
            assert state_in(teams, reader.session).labels[Label("sensitive")].origin == "the conversation with team backend"

    run(story())


@covers("teams.labels-travel")
def test_whoever_says_what_a_summary_should_keep_has_its_labels_there(team_home: TeamHome) -> None:
    team_home.write(backend=team_home.script("backend", json.dumps({"text": "nothing special"})))

    async def story() -> None:
        async with open_teams() as teams:
            await teams.ask("backend", "hello")
            (pair,) = pair_sessions(teams)
            caller = OutsideCaller(wired_of(teams).teams, wired_of(teams).gate, ANN, mode=Mode.BYPASS)
            await caller.request(caller.session, calling("list"))
            await house_of(teams).send(caller.session, AddLabels(by=SYSTEM, labels=(SENSITIVE,)))
            asked = await caller.request(caller.session, calling("compact", team="backend", instructions="keep that the code is 4711"))
            assert asked.result is not None
            assert asked.result.ok
            assert Label("sensitive") in state_in(teams, SessionId(pair)).labels

    run(story())


@covers("teams.a-caller-stays-labelled")
def test_what_one_session_of_a_caller_by_mcp_touched_counts_in_all_of_them_at_once(team_home: TeamHome) -> None:
    team_home.write(frontend="demo", mobile="demo", backend="demo")

    async def story() -> None:
        async with open_teams("frontend") as teams:
            wired = wired_of(teams)
            one, open_before = (
                McpCaller(wired.teams, wired.gate, ANN, "frontend"),
                McpCaller(wired.teams, wired.gate, ANN, "frontend", "over HTTP"),
            )
            others = (
                McpCaller(wired.teams, wired.gate, ANN, "mobile"),
                McpCaller(wired.teams, wired.gate, ANN),
                OutsideCaller(wired.teams, wired.gate, ANN, "frontend"),
            )
            for caller in (one, open_before, *others):
                assert (await caller.request(caller.session, calling("list"))).result is not None
            await house_of(teams).send(one.session, AddLabels(by=SYSTEM, labels=(SENSITIVE,)))
            await one.close("its client has left")
            for caller in (open_before, McpCaller(wired.teams, wired.gate, ANN, "frontend")):
                answer = await caller.request(caller.session, calling("ask", team="backend", question="keep this"), wait=False)
                assert (answer.waiting, answer.verdict.because) == (True, ("sensitive-stays",))
                inherited = state_in(teams, caller.session).labels[Label("sensitive")]
                assert inherited.origin == f"session {one.session}: /srv/.env"
            for caller in others:
                answer = await caller.request(caller.session, calling("ask", team="backend", question="hello"), wait=False)
                assert answer.result is not None, "it is another caller, or a human's own"
            assert (await teams.ask("backend", "hello")).status == "done"

    run(story())


@covers("teams.a-caller-stays-labelled")
def test_a_caller_by_mcp_begins_clean_once_a_human_has_deleted_its_sessions(team_home: TeamHome) -> None:
    team_home.write(frontend="demo", backend="demo")

    async def story() -> None:
        async with open_teams("frontend") as teams:
            first, second = (McpCaller(wired_of(teams).teams, wired_of(teams).gate, ANN, "frontend") for _ in range(2))
            await first.request(first.session, calling("list"))
            await house_of(teams).send(first.session, AddLabels(by=SYSTEM, labels=(SENSITIVE,)))
            await second.request(second.session, calling("list"))
            await house_of(teams).delete(first.session, ANN)
            third = McpCaller(wired_of(teams).teams, wired_of(teams).gate, ANN, "frontend")
            await third.request(third.session, calling("list"))
            assert Label("sensitive") in state_in(teams, third.session).labels, "the second one still knows"
            for caller in (second, third):
                await house_of(teams).delete(caller.session, ANN)
                assert caller.is_deleted
            last = McpCaller(wired_of(teams).teams, wired_of(teams).gate, ANN, "frontend")
            await last.request(last.session, calling("list"))
            assert state_in(teams, last.session).labels == {}

    run(story())


@covers("teams.labels-travel")
def test_a_secret_in_a_message_does_not_reach_the_other_team(team_home: TeamHome) -> None:
    secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
    team_home.write(backend=team_home.script("backend", json.dumps({"text": "thanks"})))

    async def story() -> None:
        async with open_teams() as teams:
            reply = await teams.ask("backend", f"use {secret}")
            assert reply.status == "done"
            (told,) = await teams.history("backend")
            assert secret not in str(told["message"])
            assert "[masked:" in str(told["message"])

    run(story())
