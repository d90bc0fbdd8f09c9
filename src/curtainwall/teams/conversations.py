"""The teams' conversations in this process: their sessions, shared budgets, and requests to the team keeper."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from curtainwall.config.schema import ActiveConfig
from curtainwall.model import SessionId, TryLater, record
from curtainwall.operations.sessions import Sessions
from curtainwall.teams.archive import Archive
from curtainwall.teams.keeper_mail import KeeperAction, KeeperMail
from curtainwall.teams.pair_sessions import PairSessions
from curtainwall.teams.talk import Talk


@record
class KeeperRequest:
    """A request concerning a session's agent, and the future that gets its result."""

    what: KeeperAction
    session: SessionId
    result: "asyncio.Future[str]"


class KeeperRequests:
    """The queue of requests to the keeper, in one process. Where no agent works, they go to the keeper's process by mail."""

    def __init__(self, mail: KeeperMail | None = None) -> None:
        self.mail = mail
        self._queue: asyncio.Queue[KeeperRequest] = asyncio.Queue()
        self._open: set[asyncio.Future[str]] = set()
        self._takers = 0

    async def wake(self, session: SessionId) -> str:
        """Get a session's agent ready, and return its status."""
        return await self._request("wake", session)

    async def sleep(self, session: SessionId) -> str:
        """Stop a session's agent, and return its status."""
        return await self._request("sleep", session)

    async def archive(self, session: SessionId) -> str:
        """Stop a session's agent, free the space of its conversation until the next message, and return what was done."""
        return await self._request("archive", session)

    @asynccontextmanager
    async def taking(self) -> AsyncGenerator["asyncio.Queue[KeeperRequest]"]:
        """Lend the queue to a worker; once no worker is left, refuse all open requests."""
        self._takers += 1
        try:
            yield self._queue
        finally:
            self._takers -= 1
            if not self._takers:
                self._refuse_all()

    async def _request(self, what: KeeperAction, session: SessionId) -> str:
        if not self._takers and self.mail is not None and self.mail.has_keeper:
            return await self.mail.request(what, session)
        if not self._takers:
            raise TryLater("this process lets no agent work; ask where one does, as `curtainwall serve` or `curtainwall mcp`")
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(KeeperRequest(what, session, result))
        self._open.add(result)
        result.add_done_callback(self._open.discard)
        return await result

    def _refuse_all(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
        for result in tuple(self._open):
            if not result.done():
                result.set_exception(TryLater("agents were let work here and no longer are; try again"))


@record
class Conversations:
    """The teams' conversations: their sessions, the talk in them, requests to the keeper, and the archive of totals."""

    sessions: Sessions
    config: ActiveConfig
    peers: PairSessions
    talk: Talk
    requests: KeeperRequests
    archive: Archive
