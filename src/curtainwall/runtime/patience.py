"""How long the decision of another process is waited for; one that is stopped keeps nobody waiting a second time."""

import asyncio
from collections.abc import Awaitable, Callable

from curtainwall.model import Outcome, StreamId, Undecided

PATIENCE = 10.0
"""How long people wait: longer than any decision takes, so whoever owns the session is stopped or stuck."""

_SHORT = 0.5


class Patience:
    """What one process knows of others that have let a command wait in vain."""

    def __init__(self, owner_of: Callable[[StreamId], int | None]) -> None:
        self._owner_of = owner_of
        self._unheard: set[int] = set()

    async def within(self, seconds: float, stream: StreamId, decided: Awaitable[Outcome]) -> Outcome:
        """Return what a stream's owner decides within so many seconds, or within a moment where it did not the last time.

        Past that `Undecided` is raised: the command is in the inbox, and counts as soon as whoever owns the stream looks there.
        """
        owner = self._owner_of(stream)
        try:
            async with asyncio.timeout(min(seconds, _SHORT) if owner in self._unheard else seconds):
                outcome = await decided
        except TimeoutError:
            owner = self._owner_of(stream)
            who = f"process {owner}" if owner else "whoever owns the session"
            if owner:
                self._unheard.add(owner)
            raise Undecided(f"{who} has not decided yet; this is kept and counts as soon as it does") from None
        self._unheard.discard(owner or 0)
        return outcome
