"""Makes a store's writer when something is first written, so that a process that only reads does not load it."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from curtainwall.model import StreamId, TryLater

if TYPE_CHECKING:
    from curtainwall.store.disk.writer import Writer


class WriterOnDemand:
    """The writer of one store, from its first use until the store is closed. Any thread may use it."""

    def __init__(self, make: "Callable[[], Writer]") -> None:
        self._make = make
        self._lock = threading.Lock()
        self._writer: Writer | None = None
        self._closed = False

    def get(self) -> "Writer":
        """Return the writer; raise `TryLater` if the store was closed before anything was written."""
        writer = self._writer
        if writer is not None:
            return writer
        with self._lock:
            if self._writer is None:
                if self._closed:
                    raise TryLater("the store is closed: open it again")
                self._writer = self._make()
            return self._writer

    def look(self) -> None:
        """Check whether another process wrote, and notify the watchers; does nothing if the store is closed."""
        with suppress(TryLater):
            self.get().look()

    def hint(self, name: StreamId) -> None:
        """Announce a name to all watchers; does nothing if the store is closed."""
        with suppress(TryLater):
            self.get().hint(name)

    def mark_audited(self, upto: Mapping[StreamId, int]) -> None:
        """Record how far audit files are complete, with the next commit; without one, the next process finds them complete again."""
        with suppress(TryLater):
            self.get().mark_audited(upto)

    def drain(self) -> None:
        """Refuse new work, and wait until all accepted work is done."""
        with self._lock:
            self._closed = True
        if self._writer is not None:
            self._writer.drain()

    def close(self) -> None:
        """Finish pending work and end the writer."""
        self.drain()
        if self._writer is not None:
            self._writer.close()
