"""Another process that decides for a session: how long its decision is waited for, and its end."""

import asyncio
import os
from collections.abc import Awaitable, Callable

from curtainwall.model import Outcome, StreamId, Undecided, session_of

DECISION_SECONDS = 10.0
"""How long anybody waits: longer than any decision takes, so whoever owns the session is stopped or stuck."""

_SHORT = 0.5


class OwnerTimeout:
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


class ProcessEnd:
    """Sets an event when a process ends."""

    def __init__(self, pid: int | None, ended: asyncio.Event) -> None:
        self._pid = pid
        self._ended = ended
        self._fd = -1

    def __enter__(self) -> None:
        if self._pid is None or self._pid == os.getpid():
            return
        try:
            self._fd = os.pidfd_open(self._pid)
        except OSError:
            # It has ended already, or is unknown: whoever waits has tried, and tries again.
            return
        asyncio.get_running_loop().add_reader(self._fd, self._fire)

    def __exit__(self, *_: object) -> None:
        self._close()

    def _fire(self) -> None:
        self._close()
        self._ended.set()

    def _close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
