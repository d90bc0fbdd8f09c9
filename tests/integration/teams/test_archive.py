"""Conversations that nobody uses any more cost nothing: whoever begins to work, or lists them, reads no log of theirs again."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from curtainwall import open_teams
from curtainwall.compose.sessions import Parts
from curtainwall.library.teams import Teams
from curtainwall.model import Entry, StreamId, session_stream
from curtainwall.runtime import SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from curtainwall.store.disk.store import SqliteLog
from tests.support.covers import covers
from tests.support.houses import run, until
from tests.support.teams import LISTED, TeamHome, pair_sessions

OFTEN = 3


class Watched:
    """A log that remembers whose entries were read."""

    def __init__(self, log: SqliteLog) -> None:
        self._log = log
        self.read_of: list[StreamId] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        self.read_of.append(stream)
        return self._log.read(stream, after, limit)


@asynccontextmanager
async def looked_through(home: TeamHome, asker: str = "") -> AsyncGenerator[tuple[Teams, Watched]]:
    """Work for the teams, with every archived conversation looked at already."""
    async with SqliteStore.open(home.home, SystemClock(), decode=lift) as store:
        watched = Watched(store.log)
        store.log = watched  # type: ignore[assignment] - the same port, watched
        async with open_teams(asker, parts=Parts(store=store)) as teams:
            (rousing,) = (task for task in asyncio.all_tasks() if task.get_name() == "rousing")
            await rousing
            yield teams, watched


async def talked(home: TeamHome) -> None:
    """Have three conversations, and come back when they count as archived."""
    home.more = f"{LISTED}[peers]\narchive-after = 1\n"
    home.write(backend="demo")
    async with open_teams() as teams:
        for number in range(OFTEN):
            assert (await teams.ask("backend", "hello", thread=f"t{number}", wait=60)).status == "done"
        last = max(it.used for it in teams.figures())
        await until(lambda: time.time() * 1000 > last + 2000)


@covers("teams.archived-logs-are-read-once")
def test_the_log_of_an_archived_conversation_is_read_once_and_never_again(team_home: TeamHome) -> None:
    async def story() -> None:
        await talked(team_home)
        async with looked_through(team_home) as (teams, watched):
            streams = {session_stream(session) for session in pair_sessions(teams)}
            assert set(watched.read_of) >= streams, "the first time each is read"
            told = teams.figures()
        async with looked_through(team_home) as (teams, watched):
            assert (teams.figures(), teams.approvals("backend", thread="t1")) == (told, ())
            assert [it.status for it in told] == ["archived"] * OFTEN
            assert streams.isdisjoint(watched.read_of)

    run(story())


@covers("teams.archived-logs-are-read-once")
def test_what_happens_in_an_archived_conversation_is_seen_all_the_same(team_home: TeamHome) -> None:
    def of(teams: Teams, thread: str) -> tuple[str, int, int]:
        (told,) = (it for it in teams.figures() if it.pair.thread == thread)
        return told.status, told.messages, told.open

    async def story() -> None:
        await talked(team_home)
        async with looked_through(team_home) as (teams, _):
            assert of(teams, "t0") == of(teams, "t1") == ("archived", 1, 0)
        async with open_teams(works=False) as teams:
            await teams.send("backend", "hello again", thread="t0")
            assert of(teams, "t0") == ("active", 2, 1), "it has grown since it was read"
            await until(lambda: time.time() * 1000 > max(it.used for it in teams.figures()) + 2000)
        async with looked_through(team_home) as (teams, _):
            await until(lambda: of(teams, "t0") in {("active", 2, 0), ("archived", 2, 0)}, 60)
            assert of(teams, "t1") == ("archived", 1, 0)

    run(story())
