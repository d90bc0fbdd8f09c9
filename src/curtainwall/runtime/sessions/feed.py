"""Reads the log from any cursor, and wakes those who wait for a stream."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager, suppress

from curtainwall.model import AnyEvent, Log, Recorded, StreamId
from curtainwall.session import lift


class StreamWaiters:
    """Waiters by stream."""

    def __init__(self) -> None:
        self._waiters: defaultdict[StreamId, set[asyncio.Event]] = defaultdict(set)
        self._subscribers: set[_News] = set()

    def __contains__(self, stream: StreamId) -> bool:
        """Tell whether anyone waits for a stream."""
        return stream in self._waiters or bool(self._subscribers)

    @contextmanager
    def waiter(self, *streams: StreamId) -> Generator[asyncio.Event]:
        """Yield an event that is set whenever one of the streams may have changed. The caller clears it before looking."""
        event = asyncio.Event()
        for stream in streams:
            self._waiters[stream].add(event)
        try:
            yield event
        finally:
            for stream in streams:
                self._waiters[stream].discard(event)
                if not self._waiters[stream]:
                    del self._waiters[stream]

    async def changes(self) -> AsyncIterator[frozenset[StreamId]]:
        """Yield sets of streams that may have changed, for ever. The empty set, which comes first, means any stream."""
        news = _News()
        self._subscribers.add(news)
        try:
            yield frozenset()
            while True:
                yield await news.take()
        finally:
            self._subscribers.discard(news)

    def wake(self, streams: frozenset[StreamId]) -> None:
        """Wake those who wait for these streams; the empty set wakes everyone."""
        for stream in streams or tuple(self._waiters):
            for event in self._waiters.get(stream, ()):
                event.set()
        for news in self._subscribers:
            news.tell(streams)


class _News:
    """The streams that changed since the last `take`."""

    def __init__(self) -> None:
        self._names: set[StreamId] = set()
        self._any = False
        self._awake = asyncio.Event()

    def tell(self, streams: frozenset[StreamId]) -> None:
        self._any = self._any or not streams
        self._names |= streams
        self._awake.set()

    async def take(self) -> frozenset[StreamId]:
        await self._awake.wait()
        self._awake.clear()
        names, self._names = self._names, set()
        any_, self._any = self._any, False
        return frozenset() if any_ else frozenset(names)


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
        """Drop the entries, which the log has as well."""
        self._recent.clear()

    def after(self, cursor: int) -> Sequence[Recorded] | None:
        """Return the events after the cursor, or None if that goes back further than is remembered."""
        count = self.seq - cursor
        if count > len(self._recent):
            return None
        return [Recorded(self._stream, self.seq + 1 + place, self._recent[place]) for place in range(-count, 0)]


TailOf = Callable[[StreamId], Tail | None]
"""Finds the tail of a stream that this process writes."""


class LogFeed:
    """The events of any stream, whichever process writes it."""

    def __init__(self, log: Log, wakes: StreamWaiters, tail_of: TailOf) -> None:
        self._log = log
        self._wakes = wakes
        self._tail_of = tail_of

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        """Return the events after the cursor, oldest first, at most `limit`."""
        return self._page(stream, after, limit)[:limit]

    async def follow(self, stream: StreamId, after: int = 0) -> AsyncIterator[Recorded]:
        """Yield the events after the cursor as they come, until the stream is deleted."""
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
        """Return when there is something after the cursor, or after `within` seconds."""
        with self._wakes.waiter(stream) as woken, suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self.head(stream) <= after:
                    woken.clear()
                    await woken.wait()

    def _page(self, stream: StreamId, after: int, limit: int | None = _PAGE) -> Sequence[Recorded]:
        """Return the remembered events after the cursor, or else a page of the stored ones."""
        tail = self._tail_of(stream)
        recent = None if tail is None else tail.after(after)
        if recent is not None:
            return recent
        entries = self._log.read(stream, after, limit)
        if tail is not None:
            # An entry is durable a moment before the tail has it. Shown then, it would be beyond `head` and could be read twice.
            entries = [entry for entry in entries if entry.seq <= tail.seq]
        return [Recorded(stream, entry.seq, lift(entry)) for entry in entries]

    def changes(self) -> AsyncIterator[frozenset[StreamId]]:
        """Yield sets of streams that changed, for ever. The empty set, which comes first, means any stream."""
        return self._wakes.changes()

    def head(self, stream: StreamId) -> int:
        """Return the cursor after everything that is there now."""
        tail = self._tail_of(stream)
        return self._log.head(stream) if tail is None else tail.seq
