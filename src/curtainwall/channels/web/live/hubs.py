"""The hubs there are: one for the house, and one for each session that somebody looks at."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from curtainwall.channels.web.house import House
from curtainwall.channels.web.live.clients import Client
from curtainwall.channels.web.live.house_hub import HouseHub
from curtainwall.channels.web.live.session_hub import SessionHub
from curtainwall.model import SessionId, TryLater

_MOST_STREAMS = 1_000
_LINGER_SECONDS = 20.0


class Hubs:
    """Streams of this process. A session that nobody has looked at for a while is let go of."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._sessions: dict[SessionId, SessionHub] = {}
        self._starting: dict[SessionId, asyncio.Task[SessionHub]] = {}
        self._streams = 0
        self._sweeper: asyncio.Task[None] | None = None
        self.whole = HouseHub(house)

    def start(self) -> None:
        """Begin to follow the house."""
        self.whole.start()
        self._sweeper = asyncio.create_task(self._sweep(), name="web: hubs")

    async def stop(self) -> None:
        """Send every browser away."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        hubs, self._sessions = self._sessions, {}
        await asyncio.gather(self.whole.stop(), *(hub.stop() for hub in hubs.values()))

    async def session(self, session: SessionId) -> SessionHub:
        """Return the hub of a session that is there, read up to the end of its log."""
        hub = self._sessions.get(session)
        if hub is not None and not hub.is_over:
            hub.last_seen = time.monotonic()
            return hub
        task = self._starting.get(session)
        if task is None:
            task = self._starting[session] = asyncio.create_task(self._started(session))
        return await asyncio.shield(task)

    async def stream(
        self, join: Callable[[Client], None], part: Callable[[Client], None], is_welcome: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Go on with what a client is told from the moment on in which somebody reads."""
        client = Client()
        self._streams += 1
        try:
            join(client)
            async for message in client.messages(is_welcome):
                yield message
        finally:
            self._streams -= 1
            part(client)

    def see_that_there_is_room(self) -> None:
        """Raise `TryLater` where there are too many streams."""
        if self._streams >= _MOST_STREAMS:
            raise TryLater(f"{_MOST_STREAMS} pages listen already; close some")

    async def _started(self, session: SessionId) -> SessionHub:
        hub = SessionHub(self.house, session)
        try:
            await hub.start()
            self._sessions[session] = hub
        finally:
            self._starting.pop(session, None)
        return hub

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_LINGER_SECONDS / 2)
            for session, hub in tuple(self._sessions.items()):
                if hub.is_idle and time.monotonic() - hub.last_seen > _LINGER_SECONDS:
                    del self._sessions[session]
                    await hub.stop()
