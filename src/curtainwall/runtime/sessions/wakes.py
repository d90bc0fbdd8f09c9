"""Who waits for which stream; a wake says only `look again`, the log says what."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager

from curtainwall.model import StreamId


class Wakes:
    """Waiters by stream."""

    def __init__(self) -> None:
        self._waiters: defaultdict[StreamId, set[asyncio.Event]] = defaultdict(set)
        self._curious: set[_News] = set()

    def __contains__(self, stream: StreamId) -> bool:
        """Tell whether somebody waits for a stream."""
        return stream in self._waiters or bool(self._curious)

    @contextmanager
    def waiter(self, *streams: StreamId) -> Generator[asyncio.Event]:
        """Lend an event that is set whenever one of the streams may have changed; its borrower clears it before looking."""
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
        """Tell for ever which streams may have changed, as many at once as there are; the empty set, which comes first, means any."""
        news = _News()
        self._curious.add(news)
        try:
            yield frozenset()
            while True:
                yield await news.take()
        finally:
            self._curious.discard(news)

    def wake(self, streams: frozenset[StreamId]) -> None:
        """Wake those who wait for these streams; the empty set wakes everyone."""
        for stream in streams or tuple(self._waiters):
            for event in self._waiters.get(stream, ()):
                event.set()
        for news in self._curious:
            news.tell(streams)


class _News:
    """Streams that changed since somebody last asked."""

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
