"""What a caller may use, from outside: neither a new connection, nor a restart, nor another thread gives it a fresh budget."""

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.teams.test_http import TOKEN, served
from tests.integration.teams.test_mcp import server, told
from tests.support.covers import covers
from tests.support.houses import run, until
from tests.support.ports import free_port
from tests.support.teams import LISTED, TeamHome
from tests.support.upstream import KEY, PAUSE, Says, Upstream, upstream_beside

ASK = {"team": "backend", "question": "hello", "timeout": 60_000}
USED_UP = "the budget of tokens is used up"


def curtainwall(*words: str) -> str:
    """Run the program as a human does."""
    command = [sys.executable, "-m", "curtainwall", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env={**os.environ}).stdout


def raised(why: str, amount: str = "10m") -> None:
    """Do what a refusal says that a human can do."""
    (command,) = {part for part in why.split("`") if part.startswith("curtainwall sessions budget ")}
    curtainwall(*command.replace("AMOUNT", amount).split()[1:])


def refusal(result: Any) -> str:
    assert result.is_error, result.content[0].text
    return result.content[0].text


def stdio(home: TeamHome, team: str = "frontend") -> Client:
    return Client(server(home, "--team", team))


@pytest.fixture
def poor(team_home: TeamHome) -> TeamHome:
    """Return a home whose callers have used up their tokens with the first answer."""
    team_home.more = f"[limits]\ntokens = 100\n{LISTED}"
    team_home.write(frontend="demo", mobile="demo", backend="demo")
    return team_home


@covers("teams.a-caller-has-one-budget")
def test_connecting_anew_gives_no_fresh_budget_and_what_a_human_allows_holds_from_then_on(poor: TeamHome) -> None:
    async def story() -> None:
        async with stdio(poor) as mcp:
            assert not (await mcp.call_tool("teams_ask", ASK)).is_error
            assert USED_UP in refusal(await mcp.call_tool("teams_ask", ASK))
        async with stdio(poor) as mcp:
            why = refusal(await mcp.call_tool("teams_ask", ASK))
            assert USED_UP in why
            assert "all its connections and threads taken together" in why
            assert USED_UP in refusal(await mcp.call_tool("teams_notify", {"toTeam": "backend", "message": "hello", "thread": "another"}))
            assert not (await mcp.call_tool("teams_history", {"team": "backend"})).is_error, "looking back costs nothing"
        async with stdio(poor, "mobile") as mcp:
            assert not (await mcp.call_tool("teams_ask", ASK)).is_error, "another caller has a budget of its own"
        raised(why)  # in a session that has ended by now
        async with stdio(poor) as mcp:
            assert not (await mcp.call_tool("teams_ask", ASK)).is_error
        assert "done" in curtainwall("teams", "ask", "backend", "--from", "frontend", "hello", "--output", "json"), "a human's own hand"

    run(story())


@covers("teams.a-caller-has-one-budget")
def test_two_ways_in_share_one_budget_and_what_comes_after_a_client_left_counts(
    team_home: TeamHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, web = free_port(), free_port()
    monkeypatch.setenv("FRONTEND_TOKEN", TOKEN)
    team_home.more = f'[limits]\ntokens = 100\n{LISTED}[web]\nport = {web}\n[peers]\nlisten = "127.0.0.1:{port}"\n'
    team_home.write(frontend={"model": '"demo"', "token-env": '"FRONTEND_TOKEN"'}, backend="demo")

    async def story() -> None:
        async with served(), httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
            async with Client(streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)) as mcp:
                left = {"toTeam": "backend", "message": "hello", "waitForResponse": False}
                handle = told(await mcp.call_tool("teams_send_message", left))["handle"]
            async with stdio(team_home) as mcp, asyncio.timeout(60):
                while told(await mcp.call_tool("teams_reports", {"handle": handle}))["reports"][0]["status"] != "done":  # noqa: ASYNC110 - seen from outside
                    await asyncio.sleep(0.1)
                assert USED_UP in refusal(await mcp.call_tool("teams_ask", ASK))

    run(story())


@covers("teams.a-caller-has-one-budget")
def test_a_new_thread_gives_no_more_of_a_team_than_it_allows(team_home: TeamHome) -> None:
    team_home.write(frontend="demo", mobile="demo", backend={"model": '"demo"', "tokens": "100"})

    async def story() -> None:
        async with stdio(team_home) as mcp:
            assert told(await mcp.call_tool("teams_ask", ASK))["status"] == "done", "a reply that is there already is not taken back"
            other = told(await mcp.call_tool("teams_ask", {**ASK, "thread": "other", "timeout": 8_000}))
            assert (other["status"], other["exhausted"]) == ("waiting", ["tokens"])
            threads = told(await mcp.call_tool("teams_quick_status", {"team": "backend"}))["conversations"]
            assert [it["tokens"] > 0 for it in sorted(threads, key=lambda it: it["thread"])] == [True, False], "the other did not begin"
            await asyncio.to_thread(raised, other["note"])
            assert told(await mcp.call_tool("teams_ask", {**ASK, "thread": "other"}))["status"] == "done"
            assert told(await mcp.call_tool("teams_ask", {**ASK, "thread": "third"}))["status"] == "done", "what was allowed, was in all"

    run(story())


@covers("teams.a-caller-has-one-budget")
def test_threads_that_work_at_once_stop_when_together_they_have_used_what_a_team_allows(team_home: TeamHome) -> None:
    async def story(upstream: Upstream) -> None:
        parameters = server(team_home, "--team", "frontend")
        async with Client(parameters.model_copy(update={"env": {**(parameters.env or {}), "ANTHROPIC_API_KEY": KEY}})) as mcp:

            async def thread(name: str) -> dict[str, Any]:
                known = told(await mcp.call_tool("teams_quick_status", {"team": "backend"}))["conversations"]
                return next(it for it in known if it["thread"] == name)

            slow = asyncio.create_task(mcp.call_tool("teams_ask", {**ASK, "thread": "slow"}))
            await until(lambda: len(upstream.asked) == 1)
            assert told(await mcp.call_tool("teams_ask", ASK))["status"] == "done"
            async with asyncio.timeout(60):
                while (await thread("slow"))["exhausted"] != ["tokens"]:  # noqa: ASYNC110 - seen from outside
                    await asyncio.sleep(0.05)
                upstream.go_on()
                session = (await thread("slow"))["session"]
                while (
                    json.loads(await asyncio.to_thread(curtainwall, "sessions", "show", session, "--output", "json"))["status"] != "waiting"
                ):
                    assert not slow.done()
            assert len(upstream.asked) == 2, "nothing more was asked of the model"
            await asyncio.to_thread(curtainwall, "sessions", "budget", session, "tokens", "1m")
            assert told(await slow)["answer"] == "One. \n\ntwo"

    with upstream_beside() as upstream:
        team_home.more = f'{LISTED}[models.anthropic]\nurl = "{upstream.url}"\n'
        team_home.write(frontend="demo", backend={"model": '"anthropic:claude-sonnet-5"', "tokens": "20000"})
        upstream.will(Says(("One. ", PAUSE), ("print(1)",)), Says(("hello",), read=50_000), Says(("two",)))
        run(story(upstream))


@covers("teams.a-caller-has-one-budget")
def test_an_agent_stops_when_a_team_that_it_asked_has_used_up_its_budget(team_home: TeamHome) -> None:
    with upstream_beside() as upstream:
        team_home.more = f'[limits]\ntokens = 20000\n{LISTED}[models.anthropic]\nurl = "{upstream.url}"\n'
        team_home.write(backend="anthropic:claude-sonnet-5")
        ask = "print(await teams.ask(team='backend', question='hello', timeout=60000))"
        upstream.will(Says((), (ask,)), Says(("hello",), read=50_000), Says(("I go on",)))
        command = [sys.executable, "-m", "curtainwall", "start", "--model", "anthropic:claude-sonnet-5", "go"]
        environ = {**os.environ, "ANTHROPIC_API_KEY": KEY}
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, stdin=subprocess.DEVNULL, env=environ)
    assert (done.returncode, len(upstream.asked)) == (3, 2), done.stderr
    assert USED_UP in done.stderr


@covers("teams.threads-are-counted")
def test_the_number_of_threads_is_limited_also_where_many_are_opened_at_once(team_home: TeamHome) -> None:
    team_home.more = f"{LISTED}[peers]\nthreads = 3\n"
    team_home.write(frontend="demo", mobile="demo", backend="demo")

    async def story() -> None:
        async with stdio(team_home) as mcp:
            calls = (mcp.call_tool("teams_ask", {**ASK, "thread": f"t{number}"}) for number in range(8))
            results = await asyncio.gather(*calls)
            kept = [result for result in results if not result.is_error]
            assert len(kept) == 3
            why = refusal(next(result for result in results if result.is_error))
            assert "`frontend` has 3 conversations with team `backend`, and no more may be in use at a time" in why
            assert "`peers.threads`" in why
            known = told(await mcp.call_tool("teams_quick_status", {"team": "backend"}))["conversations"]
            assert len(known) == 3
            again = {**ASK, "thread": known[0]["thread"]}
            assert not (await mcp.call_tool("teams_ask", again)).is_error, "one that is there goes on"
            forked = await mcp.call_tool("teams_fork", {"team": "backend", "thread": known[0]["thread"], "newThread": "aside"})
            assert "no more may be in use" in refusal(forked)
        async with stdio(team_home) as mcp:
            assert "no more may be in use" in refusal(await mcp.call_tool("teams_ask", {**ASK, "thread": "late"}))
        async with stdio(team_home, "mobile") as mcp:
            assert not (await mcp.call_tool("teams_ask", {**ASK, "thread": "late"})).is_error, "each asker has its own"
        gone = json.loads(curtainwall("teams", "list", "--output", "json"))["conversations"]
        await asyncio.to_thread(curtainwall, "sessions", "delete", next(it["session"] for it in gone if it["asker"] == "frontend"), "--yes")
        async with stdio(team_home) as mcp:
            assert not (await mcp.call_tool("teams_ask", {**ASK, "thread": "late"})).is_error

    run(story())
