"""Deleting after a rescue: a session whose log is lost does not lose its files as well."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import SessionId, session_stream
from curtainwall.operations.open import SessionSpec, open_new, reset
from tests.support.covers import covers
from tests.support.in_process import Places, Said
from tests.support.stores import batch, spoke

Run = Callable[..., Said]

PAGE = 4096


async def _first_and_its_heir() -> SessionId:
    """Return a session whose workspace was left to another one, which has much to say."""
    async with open_gate(load_setup()) as wired:
        first = await open_new(wired.sessions, SessionSpec("demo"), local_user())
        heir = session_stream(await reset(wired.sessions, first, local_user()))
        (wired.setup.home.session(first).workspace / "work").write_text("of the heir")
        for _ in range(60):
            await wired.store.log.append(batch(heir, wired.store.log.head(heir), spoke("x" * 2_000)))
        return first


def damage_the_heir(database: Path) -> None:
    """Destroy a page of what the heir said."""
    with closing(sqlite3.connect(database)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(database.read_bytes())
    middle = content.find(b"x" * 1_000, len(content) // 2) // PAGE * PAGE
    content[middle : middle + PAGE] = b"\xff" * PAGE
    database.write_bytes(content)


async def _killed_behind_the_log(session: SessionId) -> None:
    async with open_gate(load_setup()) as wired:
        await wired.registry.delete(session, local_user())


@covers("sessions.a-lost-sessions-workspace-is-kept")
@pytest.mark.parametrize("killed", [False, True])
def test_the_workspace_of_a_session_that_was_lost_is_set_aside(run: Run, places: Places, *, killed: bool) -> None:
    first = asyncio.run(_first_and_its_heir())
    damage_the_heir(places.home / "curtainwall.db")
    assert "1 could not be saved" in (said := run("audit", "rescue")).out + said.err
    if killed:
        asyncio.run(_killed_behind_the_log(first))
        told = run("sessions", "clean").err
    else:
        told = run("sessions", "delete", first, "--yes").err
    aside = places.home / "aside" / first
    assert f"it lies in `{aside}` now" in told
    assert (aside / "work").read_text() == "of the heir"
    assert not (places.home / "sessions" / first).exists()
