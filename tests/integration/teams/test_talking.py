"""Teams that talk through one house: who asks is remembered, apart from everybody else, under the rules of both sides."""

import json

import pytest

from curtainwall import open_teams
from curtainwall.model import (
    AnswerApproval,
    ApprovalAsked,
    CommandRefused,
    HistoryInherited,
    Label,
    MessageAccepted,
    PeerAnswered,
    Route,
    TurnFailed,
)
from tests.support.covers import covers
from tests.support.houses import ANN, run, until
from tests.support.teams import TeamHome, caller_of, events_in, house_of, pair_sessions, state_in

READS_A_SECRET = json.dumps({"code": "print(await filesystem.read_file(path='.env'))"})


@covers("teams.threads-are-apart")
def test_a_thread_is_a_conversation_of_its_own_and_a_fork_begins_with_what_was_known(team_home: TeamHome) -> None:
    team_home.write(backend=team_home.script("backend", *(json.dumps({"text": text}) for text in ("first", "second", "third"))))

    async def story() -> None:
        async with open_teams() as teams:
            assert (await teams.ask("backend", "a question of the main one")).text == "first"
            assert (await teams.ask("backend", "beside it", thread="a/b ü")).text == "first"
            await teams.fork("backend", "copy")
            assert (await teams.ask("backend", "go on", thread="copy")).text == "second"
            with pytest.raises(TurnFailed, match="already"):
                await teams.fork("backend", "copy")
            names = sorted(str(it.pair) for it in teams.figures())
            assert names == ["nobody → backend", "nobody → backend (a/b ü)", "nobody → backend (copy)"]
            copy = pair_sessions(teams)[-1]
            assert any(isinstance(event, HistoryInherited) for event in events_in(teams, copy))

    run(story())


@covers("teams.project-roots")
def test_a_project_outside_of_the_allowed_directories_is_refused_also_behind_a_link(team_home: TeamHome) -> None:
    team_home.more += f'[peers]\nproject-roots = ["{team_home.scratch}/projects/inside"]\n'
    (team_home.project("inside") / "link").symlink_to(team_home.project("outside"))
    script = team_home.script("inside", json.dumps({"text": "here"}))
    team_home.write(inside=script, outside=script)
    config = team_home.home / "config.toml"
    config.write_text(f'{config.read_text()}[teams.linked]\nproject = "{team_home.scratch}/projects/inside/link"\nmodel = "{script}"\n')

    async def story() -> None:
        async with open_teams() as teams:
            assert (await teams.ask("inside", "where are you?")).text == "here"
            for team in ("outside", "linked"):
                with pytest.raises(TurnFailed, match=r"it lies in none of `peers\.project-roots`"):
                    await teams.ask(team, "where are you?")

    run(story())


@covers("teams.who-may-ask")
def test_a_team_refuses_an_asker_with_the_rule_and_opens_nothing(team_home: TeamHome) -> None:
    rule = team_home.scratch / "own.cedar"
    rule.write_text('@id("not-mobile") forbid (principal in Team::"mobile", action == Action::"message-team", resource == Team::"data");')
    team_home.write(mobile="demo", backend={"model": '"demo"', "askers": '["nobody"]'}, data={"model": '"demo"', "policy": f'"{rule}"'})

    async def story() -> None:
        async with open_teams("mobile") as teams:
            with pytest.raises(TurnFailed, match="refused by `team-askers`: team `backend` takes no messages from `mobile`"):
                await teams.ask("backend", "hello")
            with pytest.raises(TurnFailed, match="refused by `not-mobile`"):
                await teams.ask("data", "hello")
            assert pair_sessions(teams) == []
        async with open_teams() as teams:
            assert (await teams.ask("data", "hello")).status == "done"

    run(story())


@covers("teams.a-sensitive-answer-asks")
def test_an_answer_from_a_secret_is_asked_about_at_the_teams_target_and_taints_the_asker(team_home: TeamHome) -> None:
    (team_home.project("backend") / ".env").write_text("COLOUR=blue\n")
    script = team_home.script("backend", READS_A_SECRET, json.dumps({"text": "it is blue"}))
    team_home.more += (
        '[channels.matrix]\noperators = ["@ann:example.org"]\n'
        '[matrix]\nhomeserver = "https://example.org"\nuser = "@wall:example.org"\ntoken-env = "T"\n'
    )
    team_home.write(backend={"model": f'"{script}"', "approval-target": '"matrix:!room:example.org"'})

    async def story() -> None:
        async with open_teams() as teams:
            early = await teams.ask("backend", "which colour?", wait=0.01)
            assert early.status == "waiting"
            (pair,) = pair_sessions(teams)
            await until(lambda: any(isinstance(event, ApprovalAsked) for event in events_in(teams, pair)))
            asked = next(event for event in events_in(teams, pair) if isinstance(event, ApprovalAsked))
            assert state_in(teams, pair).routes == (Route(channel="matrix", reference="!room:example.org"),)
            assert "it is blue" in asked.shown
            assert not any(isinstance(event, PeerAnswered) for event in events_in(teams, pair))
            assert Label("sensitive") not in state_in(teams, caller_of(teams)).labels
            await house_of(teams).send(pair, AnswerApproval(by=ANN, approval=asked.approval, granted=True))
            await until(lambda: Label("sensitive") in state_in(teams, caller_of(teams)).labels)
            (report,) = await teams.reports(handle=early.handle)
            assert (report["status"], report["answer"]) == ("done", "it is blue")

    run(story())


def test_a_question_that_a_human_had_to_approve_is_sent_with_their_yes_and_once(team_home: TeamHome) -> None:
    asks = (json.dumps({"code": f"print(await teams.ask(team='b', question='{which}?'))"}) for which in ("colour", "size"))
    first = team_home.script("a", *asks, json.dumps({"text": "thanks"}))
    team_home.more = '[lists]\nteams = ["a"]\n'
    team_home.write(a=first, b=team_home.script("b", json.dumps({"text": "blue"}), json.dumps({"text": "small"})))

    async def story() -> None:
        async with open_teams() as teams:

            def asked() -> list[ApprovalAsked]:
                return [event for event in events_in(teams, pair) if isinstance(event, ApprovalAsked)]

            def heard() -> list[str]:
                others = (events_in(teams, session) for session in pair_sessions(teams) if session != pair)
                return [event.text for events in others for event in events if isinstance(event, MessageAccepted)]

            early = await teams.ask("a", "go", wait=0.01)
            (pair,) = pair_sessions(teams)
            # The first opens the conversation; the second could leave with its permit, were there no wait before that.
            for count, so_far in enumerate(([], ["colour?"]), 1):
                await until(lambda count=count: len(asked()) == count)
                assert heard() == so_far, "nothing leaves before the answer"
                await house_of(teams).send(pair, AnswerApproval(by=ANN, approval=asked()[-1].approval, granted=True))
            await until(lambda: any(isinstance(event, PeerAnswered) for event in events_in(teams, pair)))
            assert heard() == ["colour?", "size?"]
            (report,) = await teams.reports(handle=early.handle)
            assert (report["status"], report["answer"]) == ("done", "thanks")

    run(story())


@covers("teams.cycles-end")
def test_a_question_that_comes_back_ends_with_its_path(team_home: TeamHome) -> None:
    def asks(team: str) -> str:
        return json.dumps({"code": f"print(await teams.ask(team='{team}', question='and you?'))"})

    first = team_home.script("a", asks("b"), json.dumps({"text": "done"}))
    second = team_home.script("b", asks("a"), json.dumps({"text": "I cannot ask back"}))
    team_home.write(a=first, b=second)

    async def story() -> None:
        async with open_teams() as teams:
            assert (await teams.ask("a", "go")).text == "done"
            between = next(session for session in pair_sessions(teams) if state_in(teams, session).name == "a → b")
            told = json.dumps([event.model_dump(mode="json") for event in events_in(teams, between)], ensure_ascii=False)
            assert "`nobody` → `a` → `b` → `a`" in told
            assert sorted(str(it.pair) for it in teams.figures()) == ["a → b", "nobody → a"], "no conversation is begun for it"

    run(story())


@covers("teams.a-timeout-loses-nothing")
def test_an_answer_that_comes_late_is_there_under_its_handle(team_home: TeamHome) -> None:
    team_home.write(backend=team_home.script("backend", json.dumps({"text": "late but true"})))

    async def story() -> None:
        async with open_teams() as teams:
            reply = await teams.ask("backend", "hurry", wait=0.001)
            assert reply.status == "waiting"

            (pair,) = pair_sessions(teams)
            await until(lambda: any(isinstance(event, PeerAnswered) for event in events_in(teams, pair)))
            (told,) = await teams.reports("backend", handle=reply.handle)
            assert (told["status"], told["answer"]) == ("done", "late but true")
            with pytest.raises(TurnFailed, match="no message `nonsense` of yours"):
                await teams.reports("backend", handle="nonsense")

    run(story())


@covers("teams.cost-is-the-askers")
def test_what_the_team_used_is_counted_where_it_was_asked(team_home: TeamHome) -> None:
    team_home.write(backend=team_home.script("backend", json.dumps({"text": "hi"})))

    async def story() -> None:
        async with open_teams() as teams:
            await teams.ask("backend", "hello")
            (figures,) = teams.figures()
            assert figures.tokens > 0
            assert state_in(teams, caller_of(teams)).spent.tokens == figures.tokens

    run(story())


@covers("teams.a-project-must-be-there")
def test_a_project_that_is_gone_or_protected_is_named(team_home: TeamHome) -> None:
    team_home.write(backend="demo")
    team_home.project("backend").rmdir()

    async def story() -> None:
        async with open_teams() as teams:
            with pytest.raises(TurnFailed, match=r"correct `teams\.backend\.project`"):
                await teams.ask("backend", "hello")

    run(story())
    (team_home.home / "config.toml").write_text(f'[teams.backend]\nproject = "{team_home.home}"\n')

    async def inside() -> None:
        async with open_teams() as teams:
            with pytest.raises(TurnFailed, match="protected path"):
                await teams.ask("backend", "hello")

    run(inside())


def test_without_teams_there_is_nobody_to_ask(team_home: TeamHome) -> None:
    team_home.write()

    async def story() -> None:
        async with open_teams():
            pass

    with pytest.raises(CommandRefused, match="no team is configured"):
        run(story())


@covers("teams.a-message-is-plain-text")
def test_slash_words_from_a_team_are_plain_text(team_home: TeamHome) -> None:
    team_home.write(backend=team_home.script("backend", json.dumps({"text": "no such thing"})))

    async def story() -> None:
        async with open_teams() as teams:
            assert (await teams.ask("backend", "/mode bypass")).text == "no such thing"
            (pair,) = pair_sessions(teams)
            assert state_in(teams, pair).mode == "default"
            assert [event.text for event in events_in(teams, pair) if isinstance(event, MessageAccepted)] == ["/mode bypass"]

    run(story())
