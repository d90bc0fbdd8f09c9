"""No server outlives its use: killed in the middle of a call, closed, or orphaned by the end of our own process."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from curtainwall.model import CloseSession
from curtainwall.tools.servers import is_running
from tests.support.covers import covers
from tests.support.houses import ANN, run, until
from tests.support.repository import ROOT
from tests.support.servers import FREE, Desk, bad_server, desk, processes_with, review

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"mark-{tmp_path.name}-{os.getpid()}"


def server_of(mark: str) -> int:
    """Return the process of the server itself, which is younger than those around it."""
    return max(pid for pid in processes_with(mark) if b"tool_server" in Path(f"/proc/{pid}/cmdline").read_bytes())


@pytest.mark.parametrize("trusted", [False, True])
@covers("servers.killed-mid-call")
def test_a_server_killed_in_the_middle_of_a_call(trusted: bool, mark: str, tmp_path: Path) -> None:
    async def story() -> None:
        free = dict.fromkeys(("hang", "spawn", "echo"), FREE)
        async with desk(tmp_path, *await review(tmp_path, bad_server("bad", mark, trusted=trusted, tools=free))) as at:
            assert await at.value("bad.echo", text="before") == "before"
            await at.value("bad.spawn")
            call = asyncio.create_task(at.failure("bad.hang"))
            await at.value("bad.echo", text="the other one is on its way")
            assert not call.done()
            os.kill(server_of(mark), signal.SIGKILL)
            assert "died during the call, which may have had its effect" in await call
            await until(lambda: not processes_with(mark))
            assert await at.value("bad.echo", text="after") == "after"
            assert processes_with(mark)
            assert is_running(tmp_path / "servers", "bad")
        await until(lambda: not processes_with(mark))
        assert not is_running(tmp_path / "servers", "bad")

    run(story())


@covers("servers.die-with-us")
def test_nothing_is_alive_after_our_process_was_killed(mark: str, tmp_path: Path) -> None:
    ours = subprocess.Popen(
        [sys.executable, "-m", "tests.support.hub_process", str(tmp_path), mark], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert ours.stdout is not None
        assert "ready" in ours.stdout.readline()
        children = [pid for pid in processes_with(mark) if pid != ours.pid]
        # Three servers, each with bubblewrap around it and two children that have left its process group.
        assert len(children) >= 3 * 4, children
        assert is_running(tmp_path / "servers", "boxed")
        ours.kill()
        ours.wait()
        deadline = time.monotonic() + 60
        while processes_with(mark) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert processes_with(mark) == []
        assert not is_running(tmp_path / "servers", "boxed")
    finally:
        ours.kill()
        ours.wait()
        ours.stdout.close()


async def closed(at: Desk) -> None:
    await at.house.send(at.session, CloseSession(by=ANN, reason="done"))


async def deleted(at: Desk) -> None:
    await at.house.delete(at.session, ANN)


@covers("servers.end-with-their-session")
@pytest.mark.parametrize("end", [closed, deleted])
def test_a_servers_processes_end_with_their_session(mark: str, tmp_path: Path, end: Callable[[Desk], Awaitable[None]]) -> None:
    async def story() -> None:
        free = {"spawn": FREE}
        async with desk(tmp_path, *await review(tmp_path, bad_server("bad", mark, tools=free))) as at:
            await at.value("bad.spawn")
            assert processes_with(mark)
            await end(at)
            await until(lambda: not processes_with(mark))

    run(story())
