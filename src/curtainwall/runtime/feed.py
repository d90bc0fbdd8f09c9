"""The log as others read it, from their own cursor."""

from collections.abc import AsyncIterator, Sequence

from curtainwall.model import Log, Recorded, StreamId
from curtainwall.runtime.wakes import Wakes
from curtainwall.session import lift

_PAGE = 1_000


class LogFeed:
    """Events of any stream, whoever writes it."""

    def __init__(self, log: Log, wakes: Wakes) -> None:
        self._log = log
        self._wakes = wakes

    def read(self, stream: StreamId, after: int = 0) -> Sequence[Recorded]:
        """Return what is there after the cursor."""
        return [Recorded(stream, entry.seq, lift(entry)) for entry in self._log.read(stream, after)]

    async def follow(self, stream: StreamId, after: int = 0) -> AsyncIterator[Recorded]:
        """Go on for ever with what comes after the cursor."""
        with self._wakes.waiter(stream) as woken:
            while True:
                woken.clear()
                while page := self._log.read(stream, after, _PAGE):
                    for entry in page:
                        yield Recorded(stream, entry.seq, lift(entry))
                    after = page[-1].seq
                await woken.wait()

    def changes(self) -> AsyncIterator[frozenset[StreamId]]:
        """Tell for ever which streams changed; the empty set, which comes first, means that any may have."""
        return self._wakes.changes()

    def head(self, stream: StreamId) -> int:
        """Return the cursor behind everything that is there now."""
        return self._log.head(stream)
