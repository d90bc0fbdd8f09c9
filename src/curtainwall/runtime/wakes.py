"""Who waits for which stream; a wake says only `look again`, the log says what."""

import asyncio
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager

from curtainwall.model import StreamId


class Wakes:
    """Waiters by stream."""

    def __init__(self) -> None:
        self._waiters: defaultdict[StreamId, set[asyncio.Event]] = defaultdict(set)

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

    def wake(self, streams: frozenset[StreamId]) -> None:
        """Wake those who wait for these streams; the empty set wakes everyone."""
        for stream in streams or tuple(self._waiters):
            for event in self._waiters.get(stream, ()):
                event.set()
