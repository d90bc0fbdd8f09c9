"""Another process that works on a session and says nothing: it may be stopped, and whoever follows it would never know."""

import asyncio
from collections.abc import Callable

from curtainwall.channels.terminal.settings import Holding
from curtainwall.model import SessionId


class Silence:
    """How long nothing was heard of a session."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._heard = asyncio.Event()

    def broken(self) -> None:
        """Note that something was heard."""
        self._heard.set()

    async def of_another(self, session: SessionId, is_awaited: Callable[[], bool]) -> int:
        """Return the other process that works on the session, as soon as it has said nothing for long although something is awaited."""
        owner: int | None = None
        while owner is None:
            self._heard.clear()
            try:
                async with asyncio.timeout(self._holding.patience):
                    await self._heard.wait()
            except TimeoutError:
                owner = self._holding.holder(session) if is_awaited() else None
        return owner
