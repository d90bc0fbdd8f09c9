"""The teams' conversations in this process: each pair's session, budgets that several share, and requests to the team keeper."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from curtainwall.config.schema import Config
from curtainwall.model import SessionId, TryLater
from curtainwall.operations.sessions import Sessions
from curtainwall.teams.archive import Archive
from curtainwall.teams.pair_sessions import PairSessions
from curtainwall.teams.pairs import Pair
from curtainwall.teams.talk import Talk


@dataclass(frozen=True, slots=True)
class KeeperRequest:
    """One thing that is wanted of a session's agent, and who waits to hear what came of it."""

    what: Literal["wake", "sleep", "fork"]
    session: SessionId
    into: Pair | None
    heard: "asyncio.Future[str]"


class KeeperRequests:
    """The wishes of one process."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[KeeperRequest] = asyncio.Queue()
        self._open: set[asyncio.Future[str]] = set()
        self._takers = 0

    async def wake(self, session: SessionId) -> str:
        """Get a session's agent ready, and say what came of it."""
        return await self._want("wake", session)

    async def sleep(self, session: SessionId) -> str:
        """Let a session's agent go, and say what came of it."""
        return await self._want("sleep", session)

    async def fork(self, session: SessionId, into: Pair) -> SessionId:
        """Open another conversation that begins with what this one knows."""
        return SessionId(await self._want("fork", session, into))

    @asynccontextmanager
    async def taking(self) -> AsyncGenerator["asyncio.Queue[KeeperRequest]"]:
        """Lend the queue to whoever fulfils wishes; what nobody is left to fulfil is refused."""
        self._takers += 1
        try:
            yield self._queue
        finally:
            self._takers -= 1
            if not self._takers:
                self._refuse_all()

    async def _want(self, what: Literal["wake", "sleep", "fork"], session: SessionId, into: Pair | None = None) -> str:
        if not self._takers:
            raise TryLater("this process lets no agent work; ask where one does, as `curtainwall serve` or `curtainwall mcp`")
        heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(KeeperRequest(what, session, into, heard))
        self._open.add(heard)
        heard.add_done_callback(self._open.discard)
        return await heard

    def _refuse_all(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
        for heard in tuple(self._open):
            if not heard.done():
                heard.set_exception(TryLater("agents were let work here and no longer are; try again"))


@dataclass(frozen=True, slots=True)
class Conversations:
    """The teams' conversations: their sessions, the talk in them, requests to whoever works for the teams, and what was summed up."""

    sessions: Sessions
    config: Callable[[], Config]
    peers: PairSessions
    talk: Talk
    requests: KeeperRequests
    archive: Archive
