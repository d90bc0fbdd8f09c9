"""A fork has its workspace, or was never made, whenever somebody stops it."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import CurtainwallError, SessionId
from curtainwall.operations.fork import fork
from curtainwall.operations.open import SessionSpec, open_new
from tests.support.covers import covers
from tests.support.in_process import Places
from tests.support.waiting import eventually


def deciding() -> set[str]:
    """Return the names of the tasks that decide for a session."""
    return {name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("actor session:")}


def written_in(workspace: str) -> Path:
    """Return the file that the parent's agent wrote, in a workspace."""
    return Path(workspace, "work")


@covers("sessions.a-fork-keeps-its-workspace")
def test_a_fork_that_is_stopped_at_its_very_commit_keeps_its_workspace(places: Places) -> None:
    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            parent = await open_new(wired.sessions, SessionSpec("demo"), local_user())
            written_in(wired.sessions.state(parent).workspace.path).write_text("of days")
            before = deciding()
            with closing(sqlite3.connect(places.home / "curtainwall.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                forking = asyncio.create_task(fork(wired.sessions, parent, local_user()))
                [name] = await eventually(lambda: deciding() - before)
                for _ in range(20):
                    await asyncio.sleep(0)
                forking.cancel()
                for _ in range(20):
                    await asyncio.sleep(0)
                other.execute("ROLLBACK")
            with pytest.raises(asyncio.CancelledError):
                await forking
            made = SessionId(name.removeprefix("actor session:"))
            assert written_in(wired.sessions.state(made).workspace.path).read_text() == "of days"

    asyncio.run(asyncio.wait_for(story(), 120))


def test_a_fork_that_could_not_be_written_leaves_nothing_behind(places: Places) -> None:
    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            parent = await open_new(wired.sessions, SessionSpec("demo"), local_user())
            (places.home / "blobs").rmdir()
            (places.home / "blobs").write_text("in the way")
            with pytest.raises(CurtainwallError):
                await fork(wired.sessions, parent, local_user())
            assert [path.name for path in (places.home / "sessions").iterdir()] == [parent]

    asyncio.run(asyncio.wait_for(story(), 120))
