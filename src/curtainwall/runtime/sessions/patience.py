"""How long the decision of another process is waited for; one that is stopped keeps nobody waiting a second time."""

import asyncio
from collections.abc import Awaitable, Callable

from curtainwall.model import Outcome, StreamId, Undecided, session_of

PATIENCE = 10.0
"""How long anybody waits: longer than any decision takes, so whoever owns the session is stopped or stuck."""

_SHORT = 0.5


class Patience:
    """What one process knows of others that have let a command wait in vain."""

    def __init__(self, seconds: float, owner_of: Callable[[StreamId], int | None]) -> None:
        self._seconds = seconds
        self._owner_of = owner_of
        self._unheard: set[int] = set()

    async def wait(self, stream: StreamId, decided: Awaitable[Outcome]) -> Outcome:
        """Return what a stream's owner decides in time, which is a moment where it did not the last time.

        Past that `Undecided` is raised: the command is in the inbox, and counts as soon as whoever owns the stream looks there.
        """
        owner = self._owner_of(stream)
        try:
            async with asyncio.timeout(min(self._seconds, _SHORT) if owner in self._unheard else self._seconds):
                outcome = await decided
        except TimeoutError:
            owner = self._owner_of(stream)
            if owner:
                self._unheard.add(owner)
            raise Undecided(session_of(stream) or stream, owner) from None
        self._unheard.discard(owner or 0)
        return outcome
