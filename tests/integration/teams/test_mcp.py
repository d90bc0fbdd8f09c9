"""`curtainwall mcp` as clients start it: the SDK's own client in both eras, and Claude Code."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.support.covers import covers
from tests.support.houses import run
from tests.support.mcp import ERAS
from tests.support.real_parts import CLAUDE
from tests.support.teams import TeamHome, keep_a_secret
from tests.support.upstream import KEY, Says, upstream_beside

NAMES = (
    "ask send_message notify list quick_status history reports cancel wake sleep compact fork".split()
)  # fmt: skip


def server(team_home: TeamHome, *words: str) -> StdioServerParameters:
    environ = {"CURTAINWALL_HOME": str(team_home.home), "HOME": str(team_home.scratch), "PATH": os.environ["PATH"]}
    return StdioServerParameters(command=sys.executable, args=["-m", "curtainwall", "mcp", *words], env=environ)


def told(result: Any) -> dict[str, Any]:
    return json.loads(result.content[0].text)


@pytest.mark.parametrize("era", ERAS)
@covers("teams.an-ordinary-mcp-server")
def test_a_client_talks_to_teams(era: str, team_home: TeamHome) -> None:
    answers = (json.dumps({"text": f"answer {number}"}) for number in range(9))
    team_home.write(frontend="demo", backend=team_home.script("backend", *answers))

    async def story() -> None:
        async with Client(server(team_home, "--team", "frontend"), mode=era) as mcp:
            assert {tool.name for tool in (await mcp.list_tools()).tools} == {f"teams_{name}" for name in NAMES}
            first = await mcp.call_tool("teams_ask", {"team": "backend", "question": "hello", "fromTeam": "frontend", "timeout": 60_000})
            assert (first.is_error, told(first)["answer"]) == (False, "answer 0")
            sent = told(await mcp.call_tool("teams_send_message", {"toTeam": "backend", "message": "go on", "waitForResponse": False}))
            assert sent["status"] == "sent"
            noted = told(await mcp.call_tool("teams_notify", {"toTeam": "backend", "message": "by the way", "ttlDays": 1}))
            assert noted["status"] == "accepted"
            last = told(await mcp.call_tool("teams_send_message", {"toTeam": "backend", "message": "and?", "timeout": 60_000}))
            assert last["answer"] == "answer 3"
            (report,) = told(await mcp.call_tool("teams_reports", {"handle": sent["handle"]}))["reports"]
            assert report["answer"] == "answer 1"
            history = told(await mcp.call_tool("teams_history", {"team": "backend"}))
            assert [it["message"] for it in history["messages"]] == ["hello", "go on", "by the way", "and?"]
            (pair,) = told(await mcp.call_tool("teams_quick_status", {"team": "backend"}))["conversations"]
            assert (pair["asker"], pair["messages"], pair["open"], pair["status"]) == ("frontend", 4, 0, "active")
            teams = told(await mcp.call_tool("teams_list", {}))
            assert (teams["you"], [it["team"] for it in teams["teams"]]) == ("frontend", ["backend", "frontend"])
            assert told(await mcp.call_tool("teams_sleep", {"team": "backend"}))["status"] == "asleep"
            assert told(await mcp.call_tool("teams_wake", {"team": "backend"}))["status"] == "awake"
            forked = told(await mcp.call_tool("teams_fork", {"team": "backend", "newThread": "aside"}))
            assert (forked["status"], forked["thread"]) == ("forked", "aside")
            aside = await mcp.call_tool("teams_ask", {"team": "backend", "question": "you too?", "thread": "aside", "timeout": 60_000})
            assert told(aside)["answer"] == "answer 4", "it begins with what the other one knew"
            assert told(await mcp.call_tool("teams_compact", {"team": "backend"}))["status"] == "compact-pending"
            nothing = await mcp.call_tool("teams_cancel", {"team": "backend"})
            assert (nothing.is_error, nothing.content[0].text) == (True, "nothing is open there")
            unknown = await mcp.call_tool("teams_ask", {"team": "nobody-such", "question": "x"})
            assert unknown.is_error
            assert "must be one of" in unknown.content[0].text

    run(story())


@covers("teams.the-caller-is-known")
def test_a_caller_cannot_speak_for_another_team(team_home: TeamHome) -> None:
    team_home.write(frontend="demo", mobile="demo", backend="demo")

    async def story() -> None:
        async with Client(server(team_home, "--team", "frontend")) as mcp:
            spoofed = await mcp.call_tool("teams_ask", {"team": "backend", "question": "x", "fromTeam": "mobile"})
            assert spoofed.is_error
            assert "you are known here as `frontend`, not as `mobile`" in spoofed.content[0].text
            # A JSON null is nobody's name, and no other team's either.
            listed = told(await mcp.call_tool("teams_list", {"fromTeam": None}))
            assert all(not it["conversations"] for it in listed["teams"])

    run(story())


@covers("teams.a-caller-stays-labelled")
def test_a_restart_washes_no_label_off(team_home: TeamHome) -> None:
    team_home.write(frontend="demo", vault=keep_a_secret(team_home), backend=team_home.script("backend", json.dumps({"text": "thanks"})))

    def curtainwall(*words: str) -> str:
        told_to = [sys.executable, "-m", "curtainwall", *words]
        return subprocess.run(told_to, capture_output=True, text=True, timeout=60, check=True, env={**os.environ}).stdout

    async def story() -> None:
        async with Client(server(team_home, "--team", "frontend")) as mcp:
            assert "swordfish" in told(await mcp.call_tool("teams_ask", {"team": "vault", "question": "the word?"}))["answer"]
        async with Client(server(team_home, "--team", "frontend")) as mcp:
            asking = asyncio.create_task(mcp.call_tool("teams_ask", {"team": "backend", "question": "the word is swordfish-blue"}))
            async with asyncio.timeout(60):
                while not (asks := json.loads(await asyncio.to_thread(curtainwall, "approvals", "list", "--output", "json"))):
                    assert not asking.done(), "it was passed on without a human"
            await asyncio.to_thread(curtainwall, "deny", asks[0]["id"])
            assert (await asking).is_error
        own = json.loads(curtainwall("sessions", "list", "--channel", "mcp", "--output", "json"))
        assert [row["labels"] for row in own] == [["sensitive"], ["sensitive"]]
        assert "thanks" in curtainwall("teams", "ask", "backend", "--from", "frontend", "hello"), "what a human asks begins clean"

    run(story())


@covers("teams.an-ordinary-mcp-server")
def test_claude_code_asks_a_team(team_home: TeamHome, real_part: Callable[[str], str]) -> None:
    real_part("claude-code")
    team_home.write(frontend="demo", backend=team_home.script("backend", json.dumps({"text": "port 8080"})))
    parameters = server(team_home, "--team", "frontend")
    config = team_home.scratch / "mcp.json"
    told_to = {"command": parameters.command, "args": parameters.args, "env": parameters.env}
    config.write_text(json.dumps({"mcpServers": {"teams": told_to}}))
    with upstream_beside() as upstream:
        ask = json.dumps({"team": "backend", "question": "which port?", "timeout": 60_000})
        upstream.will(Says(tool="mcp__teams__teams_ask", arguments=(ask,)), Says(("they use port 8080",)))
        done = subprocess.run(
            [CLAUDE, "-p", "--output-format", "json", "--mcp-config", config, "--strict-mcp-config", "--setting-sources", "user",
             "--allowedTools", "mcp__teams__teams_ask", "--model", "claude-sonnet-4-5"],
            input="ask the backend team which port it uses", capture_output=True, text=True, timeout=100, check=False,
            cwd=team_home.project("frontend"),
            env={
                "PATH": os.environ["PATH"], "HOME": str(team_home.scratch), "ANTHROPIC_BASE_URL": upstream.url, "ANTHROPIC_API_KEY": KEY,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ENABLE_TOOL_SEARCH": "false", "CLAUDE_CODE_MAX_RETRIES": "1",
            },
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert json.loads(done.stdout)["result"] == "they use port 8080"
        assert "port 8080" in json.dumps(upstream.asked[-1].body["messages"][-1])


def test_a_team_that_is_not_there_is_named_at_once(team_home: TeamHome) -> None:
    team_home.write(backend="demo")
    done = subprocess.run(
        [sys.executable, "-m", "curtainwall", "mcp", "--team", "nosuch"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False, env={**os.environ},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.strip() == "curtainwall: there is no team `nosuch`; there are: `backend`"
