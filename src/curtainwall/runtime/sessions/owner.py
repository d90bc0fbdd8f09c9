"""Another process that owns a session: how long to wait for its decision, and how to notice its end."""

import asyncio
import os
from collections.abc import Awaitable, Callable

from curtainwall.model import Outcome, StreamId, Undecided, session_of

DECISION_SECONDS = 10.0
"""How long to wait for a decision. It is longer than any decision takes, so past it the session's owner is stopped or stuck."""

_SHORT = 0.5


class OwnerTimeout:
    """Waits for owners' decisions, and remembers the processes that failed to decide in time."""

    def __init__(self, seconds: float, owner_of: Callable[[StreamId], int | None]) -> None:
        self._seconds = seconds
        self._owner_of = owner_of
        self._unresponsive: set[int] = set()

    async def wait(self, stream: StreamId, decided: Awaitable[Outcome]) -> Outcome:
        """Return the decision of a stream's owner. An owner that did not decide in time before gets only a moment.

        Raise `Undecided` after that: the command is in the inbox, and counts as soon as the stream's owner looks there.
        """
        owner = self._owner_of(stream)
        try:
            async with asyncio.timeout(min(self._seconds, _SHORT) if owner in self._unresponsive else self._seconds):
                outcome = await decided
        except TimeoutError:
            owner = self._owner_of(stream)
            if owner:
                self._unresponsive.add(owner)
            raise Undecided(session_of(stream) or stream, owner) from None
        self._unresponsive.discard(owner or 0)
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
            # It has already ended, or is unknown: the waiter retries anyway.
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
