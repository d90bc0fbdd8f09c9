"""The tools of teams over HTTP in `serve`: the SDK's own client, a token for each team, and nobody without one."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from curtainwall.model import AnswerApproval, ApprovalQuery, ApprovalRow, CallDenied, SessionQuery, session_stream
from curtainwall.serve.service import Serving, serving
from tests.support.covers import covers
from tests.support.houses import ANN, run
from tests.support.mcp import ENVELOPE, ERAS
from tests.support.ports import free_port
from tests.support.real_parts import CLAUDE
from tests.support.teams import LISTED, TeamHome, keep_a_secret
from tests.support.upstream import KEY, Says, upstream_beside

TOKEN, OTHER = "t" * 32, "o" * 32


@pytest.fixture
def port(team_home: TeamHome, monkeypatch: pytest.MonkeyPatch) -> int:
    """Write a configuration with two teams that have tokens, and return the port of their endpoint."""
    found, web = free_port(), free_port()
    monkeypatch.setenv("FRONTEND_TOKEN", TOKEN)
    (team_home.scratch / "token").write_text(f"{OTHER}\n")
    team_home.more = f'{LISTED}[web]\nport = {web}\n[peers]\nlisten = "127.0.0.1:{found}"\n'
    answers = (json.dumps({"text": f"answer {number}"}) for number in range(9))
    script = team_home.script("backend", *answers)
    team_home.write(
        frontend={"model": '"demo"', "token-env": '"FRONTEND_TOKEN"'},
        mobile={"model": '"demo"', "token-file": f'"{team_home.scratch / "token"}"'},
        backend=script,
    )
    return found


@asynccontextmanager
async def served() -> AsyncGenerator[Serving]:
    async with serving() as house:
        async with asyncio.timeout(90):
            while house.supervisor.health().get("teams") != "":  # noqa: ASYNC110 - the service has no event of its own to wait for
                await asyncio.sleep(0.01)
        yield house


async def asked(house: Serving) -> ApprovalRow:
    """Wait until a human is asked, and return what."""
    async with asyncio.timeout(90):
        while not (asks := house.wired.store.index.approvals(ApprovalQuery())):  # noqa: ASYNC110 - the ask is written by whoever decides
            await asyncio.sleep(0.02)
    return asks[0]


def told(result: Any) -> dict[str, Any]:
    return json.loads(result.content[0].text)


@pytest.mark.parametrize("era", ERAS)
@covers("teams.over-http")
def test_a_client_with_a_token_talks_as_its_team(era: str, port: int) -> None:
    async def story() -> None:
        async with served(), httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
            way = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
            async with Client(way, mode=era) as mcp:
                assert "teams_ask" in {tool.name for tool in (await mcp.list_tools()).tools}
                first = await mcp.call_tool("teams_ask", {"team": "backend", "question": "hello", "timeout": 60_000})
                assert told(first)["answer"] == "answer 0"
                assert told(await mcp.call_tool("teams_list", {}))["you"] == "frontend"
                lied = await mcp.call_tool("teams_ask", {"team": "backend", "question": "hello", "fromTeam": "mobile"})
                assert (lied.is_error, "known here as `frontend`" in lied.content[0].text) == (True, True)

    run(story())


@covers("teams.over-http")
def test_nobody_comes_in_without_a_token_or_into_the_session_of_another_team(port: int) -> None:
    async def story() -> None:
        async with served(), httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
            begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
            for shown in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer"}):
                assert (await http.post("/mcp", json=begin, headers=shown)).status_code == 401
            mine, theirs = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"Bearer {OTHER}"}
            assert (await http.post("/mcp", json=begin, headers={**mine, "Origin": "https://evil.example"})).status_code == 403
            begun = await http.post("/mcp", json=begin, headers=mine)
            name = {"mcp-session-id": begun.headers["mcp-session-id"]}
            listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            assert (await http.post("/mcp", json=listing, headers={**theirs, **name})).status_code == 404
            assert (await http.post("/mcp", content=b"[" * 100_000, headers=mine)).status_code == 400
            assert (await http.get("/mcp", headers=mine)).status_code == 405
            assert (await http.request("DELETE", "/mcp", headers={**mine, **name})).status_code == 204
            assert (await http.post("/mcp", json=listing, headers={**mine, **name})).status_code == 404

    run(story())


@covers("teams.over-http")
def test_the_sdks_client_gets_nowhere_without_a_known_token(port: int) -> None:
    async def story() -> None:
        async with served():
            for shown in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {TOKEN}x"}):
                heard: list[int] = []

                async def note(response: httpx2.Response, heard: list[int] = heard) -> None:
                    heard.append(response.status_code)

                async with httpx2.AsyncClient(headers=shown, timeout=60, event_hooks={"response": [note]}) as http:
                    with pytest.raises(Exception, match=r"unhandled errors|error response"):
                        async with Client(streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)) as mcp:
                            await mcp.list_tools()
                assert set(heard) == {401}

    run(story())


@pytest.mark.parametrize("era", ERAS)
@covers("teams.a-caller-stays-labelled")
def test_a_new_connection_with_the_same_token_washes_no_label_off(era: str, team_home: TeamHome, port: int) -> None:
    team_home.write(
        frontend={"model": '"demo"', "token-env": '"FRONTEND_TOKEN"'},
        vault=keep_a_secret(team_home),
        backend=team_home.script("backend", json.dumps({"text": "thanks"})),
    )

    async def story() -> None:
        async with served() as house, httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
            url = f"http://127.0.0.1:{port}/mcp"
            async with Client(streamable_http_client(url, http_client=http), mode=era) as mcp:
                assert "swordfish" in told(await mcp.call_tool("teams_ask", {"team": "vault", "question": "the word?"}))["answer"]
            async with Client(streamable_http_client(url, http_client=http), mode="legacy") as mcp:
                question = {"team": "backend", "question": "the word is swordfish-blue"}
                asking = asyncio.create_task(mcp.call_tool("teams_ask", question))
                ask = await asked(house)
                assert "sensitive-stays" in ask.shown
                await house.wired.registry.send(ask.session, AnswerApproval(by=ANN, approval=ask.approval, granted=False))
                assert (await asking).is_error

    run(story())


@covers("teams.a-caller-stays-labelled")
def test_whoever_sends_single_requests_goes_on_after_its_session_was_deleted(port: int) -> None:
    ask = {"name": "teams_list", "arguments": {}, "_meta": ENVELOPE}
    calling = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ask}

    async def story() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with served() as house, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as http:
            for _ in range(2):
                assert "frontend" in (await http.post("/mcp", json=calling)).text
                (row,) = house.wired.store.index.sessions(SessionQuery(channel="mcp"))
                await house.wired.registry.delete(row.session, ANN)

    run(story())


@covers("teams.over-http")
def test_a_second_request_with_the_id_of_an_open_one_is_refused_and_the_first_is_answered(team_home: TeamHome, port: int) -> None:
    team_home.more = team_home.more.replace(LISTED, "")
    team_home.write(frontend={"model": '"demo"', "token-env": '"FRONTEND_TOKEN"'}, backend="demo")

    def asking(number: int, token: str) -> dict[str, Any]:
        params = {"name": "teams_ask", "arguments": {"team": "backend", "question": "hello"}, "_meta": {"progressToken": token}}
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}

    async def story() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with served() as house, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as http:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
            begun = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
            name = {"mcp-session-id": begun.headers["mcp-session-id"]}
            await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=name)
            first = asyncio.create_task(http.post("/mcp", json=asking(7, "a"), headers=name))
            ask = await asked(house)
            for same in (asking(7, "b"), asking(8, "a")):
                refused = await asyncio.wait_for(http.post("/mcp", json=same, headers=name), 90)
                assert "is still open; take another" in refused.text
            await house.wired.registry.send(ask.session, AnswerApproval(by=ANN, approval=ask.approval, granted=False, reason="not now"))
            assert "not now" in (await first).text
            again = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 7, "method": "tools/list"}, headers=name)
            assert "teams_ask" in again.text, "an id that was answered is free again"

    run(story())


@covers("mcp-in.one-reading", "teams.over-http")
def test_arguments_with_a_key_twice_are_denied_and_logged_over_http_as_well(port: int) -> None:
    def calling(arguments: str, before: str = "") -> str:
        params = f'{{"name": "teams_list",\n "arguments": {arguments},\r\n "_meta": {json.dumps(ENVELOPE)}}}'
        return f'{{{before} "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'

    async def story() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with served() as house, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as http:
            assert '\\"you\\"' in (await http.post("/mcp", content=calling("{}"))).text
            said = await http.post("/mcp", content=calling('{"a": 1, "a": 2}'))
            assert "invalid-arguments" in said.text
            assert "`a` is given twice" in said.text
            (row,) = house.wired.store.index.sessions(SessionQuery())
            entries = house.wired.registry.feed.read(session_stream(row.session))
            assert [it.event.verdict.because for it in entries if isinstance(it.event, CallDenied)] == [("invalid-arguments",)]
            for before in ('"id": 2,', '"method": "ping",', '"params": {},'):
                assert (await http.post("/mcp", content=calling("{}", before))).status_code == 400

    run(story())


@covers("teams.over-http")
def test_claude_code_asks_a_team_over_http_as_the_team_whose_token_it_shows(
    team_home: TeamHome, port: int, real_part: Callable[[str], str]
) -> None:
    real_part("claude-code")

    async def claude(url: str, token: str) -> dict[str, Any]:
        config = team_home.scratch / "mcp.json"
        way = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp", "headers": {"Authorization": f"Bearer {token}"}}
        config.write_text(json.dumps({"mcpServers": {"teams": way}}))
        started = await asyncio.create_subprocess_exec(
            CLAUDE, "-p", "--output-format", "stream-json", "--verbose", "--mcp-config", config, "--strict-mcp-config",
            "--setting-sources", "user", "--allowedTools", "mcp__teams", "--model", "claude-sonnet-4-5", "--", "ask the backend team",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            cwd=team_home.project("mobile"),
            env={
                "PATH": os.environ["PATH"], "HOME": str(team_home.scratch), "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ENABLE_TOOL_SEARCH": "false", "CLAUDE_CODE_MAX_RETRIES": "1",
            },
        )  # fmt: skip
        out, err = await started.communicate()
        lines = [json.loads(line) for line in out.splitlines()]
        assert started.returncode == 0, (out, err)
        begun = next(line for line in lines if line.get("subtype") == "init")
        return {"server": begun["mcp_servers"][0]["status"], "result": lines[-1]["result"]}

    async def story() -> None:
        with upstream_beside() as upstream:
            async with served() as house:
                question = json.dumps({"team": "backend", "question": "hello", "timeout": 60_000})
                upstream.will(Says(tool="mcp__teams__teams_ask", arguments=(question,)), Says(("they said it",)))
                assert await claude(upstream.url, OTHER) == {"server": "connected", "result": "they said it"}
                assert "answer 0" in json.dumps(upstream.asked[-1].body["messages"][-1])
                (pair,) = house.wired.teams.talk.figures()
                assert str(pair.pair) == "mobile → backend"
                upstream.will(Says(("I have no such tool",)))
                refused = await claude(upstream.url, "wrong")
                assert refused["server"] in ("failed", "needs-auth"), refused

    run(story())
