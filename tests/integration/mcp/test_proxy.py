"""`curtainwall mcp-proxy` as clients start it: the SDK's own stdio client, a human who answers in another process, and a killed proxy."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from curtainwall.cli.commands.mcp_proxy import mcp_socket_of
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import Setup, load_setup
from curtainwall.host import is_served
from curtainwall.model import SessionId
from curtainwall.tools.mcp_in import McpServer
from tests.support.covers import covers
from tests.support.forks import curtainwall
from tests.support.houses import open_session, run, until
from tests.support.mcp import ERAS, client


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "work").mkdir()
    return {"CURTAINWALL_HOME": str(tmp_path / "h"), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}


def opened(environ: Mapping[str, str], workspace: Path) -> tuple[Setup, SessionId]:
    setup = load_setup(environ=environ)

    async def story() -> SessionId:
        async with open_gate(setup) as wired:
            return await open_session(wired.registry, workspace, own=False)

    return setup, run(story())


def json_of(environ: Mapping[str, str], *words: str) -> Any:
    done = curtainwall(*words, "--output", "json", environ=environ)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def proxy(environ: Mapping[str, str], session: SessionId) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=["-m", "curtainwall", "mcp-proxy", "--session", session], env=dict(environ))


async def first_open(environ: Mapping[str, str]) -> str:
    for _ in range(60):
        rows = await asyncio.to_thread(json_of, environ, "approvals", "list")
        if rows:
            return rows[0]["id"]
    raise AssertionError("nobody was asked")


@pytest.mark.parametrize("era", ERAS)
@covers("mcp-in.proxy", "mcp-in.answered-in-another-process")
def test_a_client_on_stdio_gets_its_result_after_approve_in_another_process(era: str, environ: dict[str, str], tmp_path: Path) -> None:
    setup, session = opened(environ, tmp_path / "work")
    outside = tmp_path / "outside.txt"
    notes: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        notes.append(message)

    async def story() -> None:
        async with Client(proxy(environ, session), mode=era) as mcp:
            assert "filesystem__write_file" in {tool.name for tool in (await mcp.list_tools()).tools}
            assert is_served(mcp_socket_of(setup.home, session))
            call = asyncio.create_task(
                mcp.call_tool("filesystem__write_file", {"path": str(outside), "content": "x"}, progress_callback=hear)
            )
            approval = await first_open(environ)
            await until(lambda: notes)
            assert not outside.exists()
            told = await asyncio.to_thread(json_of, environ, "approve", approval)
            assert told["status"] == "granted"
            assert not (await call).is_error
            assert outside.read_text() == "x"
            # A second client joins the process that serves already.
            async with Client(proxy(environ, session), mode=era) as other:
                assert not (await other.call_tool("filesystem__list_allowed_directories", {})).is_error

    run(story())
    # The SDK's client ends a process that takes more than two seconds to end by itself, which leaves the file.
    assert not is_served(mcp_socket_of(setup.home, session))


@covers("mcp-in.answered-in-another-process")
def test_a_client_on_the_socket_gets_its_result_after_approve_in_another_process(environ: dict[str, str], tmp_path: Path) -> None:
    setup, session = opened(environ, tmp_path / "work")
    outside = tmp_path / "outside.txt"

    async def serve(wired: GatedSessions) -> None:
        path = mcp_socket_of(setup.home, session)
        path.parent.mkdir(mode=0o700)
        door = McpServer(session, wired.gate, wired.registry.feed, wired.tools.listing, wired.registry.clock)
        async with door.open(path), client(path) as mcp:
            call = asyncio.create_task(mcp.call_tool("filesystem__write_file", {"path": str(outside), "content": "x"}))
            await asyncio.to_thread(json_of, environ, "approve", await first_open(environ))
            assert not (await call).is_error
            assert outside.read_text() == "x"

    async def story() -> None:
        async with open_gate(setup) as wired:
            await serve(wired)

    run(story())


def test_stdin_that_ends_is_answered_to_its_last_line(environ: dict[str, str], tmp_path: Path) -> None:
    _, session = opened(environ, tmp_path / "work")
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    frames = [{"jsonrpc": "2.0", "id": number, "method": "tools/list", "params": {"_meta": meta}} for number in range(30)]
    done = subprocess.run(
        [sys.executable, "-m", "curtainwall", "mcp-proxy", "--session", session],
        input="".join(f"{json.dumps(frame)}\n" for frame in frames),
        env=environ, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == list(range(30))


@covers("mcp-in.one-reading")
def test_arguments_with_a_key_twice_are_denied_through_the_proxy(environ: dict[str, str], tmp_path: Path) -> None:
    _, session = opened(environ, tmp_path / "work")
    meta = '{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}'
    arguments = '{"path": "notes.txt", "path": "other.txt", "content": "x"}'
    params = f'{{"name": "filesystem__write_file", "arguments": {arguments}, "_meta": {meta}}}'
    done = subprocess.run(
        [sys.executable, "-m", "curtainwall", "mcp-proxy", "--session", session],
        input=f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}\n',
        env=environ, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "invalid-arguments" in json.loads(done.stdout)["result"]["content"][0]["text"]
    assert list((tmp_path / "work").iterdir()) == []


def test_a_session_in_which_nothing_was_said_yet_can_be_talked_to_while_a_proxy_holds_it(environ: dict[str, str], tmp_path: Path) -> None:
    _, session = opened(environ, tmp_path / "work")

    async def story() -> Any:
        async with Client(proxy(environ, session)) as mcp:
            await mcp.list_tools()
            started = asyncio.create_task(asyncio.to_thread(json_of, environ, "start", "--resume", session, "hello"))
            # Its message comes into the log, which is all that can happen while the proxy decides.
            while not started.done() and not (await asyncio.to_thread(json_of, environ, "sessions", "show", session))["queue"]:
                continue
        return await started

    assert run(story())["status"] == "done"


@covers("session.closed-can-be-reopened")
def test_a_session_that_ended_with_its_task_is_opened_again_for_its_tools(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "work" / "notes.txt").write_text("the shop opens at nine")
    work = str(tmp_path / "work")
    assert curtainwall("start", "--model", "demo", "--workspace", work, "read notes.txt", environ=environ).returncode == 0
    (row,) = json_of(environ, "sessions", "list")
    assert row["status"] == "closed"

    async def story() -> None:
        async with Client(proxy(environ, row["id"])) as mcp:
            read = await mcp.call_tool("filesystem__read_file", {"path": "notes.txt"})
            assert not read.is_error
            assert "nine" in str(read.content)

    run(story())


def ends_of(path: Path) -> int:
    """Return how many sockets were made in the place of this one: it itself, and one for each client that its owner knows of."""
    names = (line.split(maxsplit=7)[7:] for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return sum(Path(name).parent == path.parent for rest in names for name in rest)


@pytest.mark.parametrize("is_joined", [False, True], ids=["alone", "joined"])
def test_stdin_that_ends_while_a_human_is_asked_ends_the_proxy_and_the_answer_is_kept(
    is_joined: bool, environ: dict[str, str], tmp_path: Path
) -> None:
    setup, session = opened(environ, tmp_path / "work")
    outside, inside = tmp_path / "outside.txt", tmp_path / "work" / "a"
    inside.write_text("within")

    def call(number: int, name: str, **arguments: str) -> str:
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
        params = {"_meta": meta, "name": name, "arguments": arguments}
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}) + "\n"

    def spoken(*lines: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "curtainwall", "mcp-proxy", "--session", session]
        return subprocess.run(command, input="".join(lines), env=environ, capture_output=True, text=True, timeout=60, check=True)

    write = call(1, "filesystem__write_file", path=str(outside), content="x")

    async def story() -> "subprocess.CompletedProcess[str]":
        async with contextlib.AsyncExitStack() as stack:
            if is_joined:
                mcp = await stack.enter_async_context(Client(proxy(environ, session)))
                await mcp.list_tools()
            before = ends_of(mcp_socket_of(setup.home, session))
            assert (before > 0) is is_joined
            done = await asyncio.to_thread(spoken, write, call(2, "filesystem__read_file", path=str(inside)))
            # Whoever is still thought to be there when the answer comes gets its call run.
            await until(lambda: ends_of(mcp_socket_of(setup.home, session)) == before)
            approval = await first_open(environ)
            await asyncio.to_thread(json_of, environ, "approve", approval)
            return done

    done = run(story())
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [2], "what needs nobody is answered"
    assert "stays open" in done.stderr
    assert not outside.exists()
    again = json.loads(spoken(write).stdout)
    assert not again["result"].get("isError")
    assert outside.read_text() == "x"
    assert not mcp_socket_of(setup.home, session).exists()


def test_a_session_that_another_process_decides_for_is_left_to_it(environ: dict[str, str], tmp_path: Path) -> None:
    setup, session = opened(environ, tmp_path / "work")

    async def story() -> "subprocess.CompletedProcess[str]":
        async with open_gate(setup) as wired, wired.registry.hold(session):
            return await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "curtainwall", "mcp-proxy", "--session", session],
                stdin=subprocess.DEVNULL, env=environ, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip

    done = run(story())
    assert done.returncode != 0
    assert f"is in use by process {os.getpid()}" in done.stderr
    assert done.stdout == ""


def test_a_socket_that_a_killed_process_left_is_taken_over(environ: dict[str, str], tmp_path: Path) -> None:
    setup, session = opened(environ, tmp_path / "work")
    path = mcp_socket_of(setup.home, session)

    async def served(process: asyncio.subprocess.Process) -> None:
        await until(lambda: is_served(path) or process.returncode is not None, 60)
        assert process.returncode is None

    async def story() -> None:
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "curtainwall", "mcp-proxy", "--session", session]
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environ)
        await served(process)
        process.kill()
        await process.wait()
        assert path.is_socket()
        async with Client(proxy(environ, session)) as mcp:
            assert not (await mcp.call_tool("filesystem__list_allowed_directories", {})).is_error

    run(story())
