"""The log as others read it, from their own cursor."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

from curtainwall.model import AnyEvent, Log, Recorded, StreamId
from curtainwall.runtime.sessions.wakes import Wakes
from curtainwall.session import lift

_PAGE = 1_000
_RECENT = 64


class Tail:
    """The last entries of a stream that only this process writes, as they are in the log."""

    def __init__(self, stream: StreamId, seq: int) -> None:
        self.seq = seq
        self._stream = stream
        self._recent: deque[AnyEvent] = deque(maxlen=_RECENT)

    def extend(self, events: Sequence[AnyEvent]) -> None:
        """Add what is durable by now."""
        self.seq += len(events)
        self._recent.extend(events)

    def forget(self) -> None:
        """Let go of the entries, of which the log tells as well."""
        self._recent.clear()

    def after(self, cursor: int) -> Sequence[Recorded] | None:
        """Return what comes after the cursor; None where that goes further back than is remembered."""
        count = self.seq - cursor
        if count > len(self._recent):
            return None
        return [Recorded(self._stream, self.seq + 1 + place, self._recent[place]) for place in range(-count, 0)]


TailOf = Callable[[StreamId], Tail | None]
"""Finds the tail of a stream that this process writes."""


class LogFeed:
    """Events of any stream, whoever writes it."""

    def __init__(self, log: Log, wakes: Wakes, tail_of: TailOf) -> None:
        self._log = log
        self._wakes = wakes
        self._tail_of = tail_of

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        """Return what is there after the cursor, oldest first; so many at most."""
        return self._page(stream, after, limit)[:limit]

    async def follow(self, stream: StreamId, after: int = 0) -> AsyncIterator[Recorded]:
        """Go on with what comes after the cursor, until the stream is deleted."""
        with self._wakes.waiter(stream) as woken:
            while True:
                woken.clear()
                before = after
                while page := self._page(stream, after):
                    for recorded in page:
                        yield recorded
                    after = page[-1].seq
                if after == before and after and self.head(stream) == 0:
                    return
                await woken.wait()

    async def grown(self, stream: StreamId, after: int, within: float | None = None) -> None:
        """Return when there is something after the cursor, or so many seconds have passed."""
        with self._wakes.waiter(stream) as woken, suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self.head(stream) <= after:
                    woken.clear()
                    await woken.wait()

    def _page(self, stream: StreamId, after: int, limit: int | None = _PAGE) -> Sequence[Recorded]:
        """Return what is remembered after the cursor, and otherwise so much of what is stored."""
        tail = self._tail_of(stream)
        recent = None if tail is None else tail.after(after)
        if recent is not None:
            return recent
        return [Recorded(stream, entry.seq, lift(entry)) for entry in self._log.read(stream, after, limit)]

    def changes(self) -> AsyncIterator[frozenset[StreamId]]:
        """Tell for ever which streams changed; the empty set, which comes first, means that any may have."""
        return self._wakes.changes()

    def head(self, stream: StreamId) -> int:
        """Return the cursor behind everything that is there now."""
        tail = self._tail_of(stream)
        return self._log.head(stream) if tail is None else tail.seq
