"""Who writes what comes from a busy loop: the thread while one thing follows the other, a process of its own while many are under way."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from curtainwall.model import Clock, StreamId
from curtainwall.store.disk.frames import Frames, Terms
from curtainwall.store.disk.prepared import PreparedBatch
from curtainwall.store.disk.scribe import Bounds, Death, Hears, Pending, Scribe

_PAUSE, _LONGEST_PAUSE = 1.0, 600.0
_PATIENCE: Final = 10
_LOG = logging.getLogger(__name__)


class Thread(Protocol):
    """The thread that writes otherwise."""

    def submit(self, batch: PreparedBatch) -> "asyncio.Future[Mapping[StreamId, int]]":
        """Take a batch."""
        ...

    def take_back(self, waiting: Sequence[Pending], loop: asyncio.AbstractEventLoop, death: Death) -> None:
        """Take batches that somebody else was given who is dying, with those who wait for them."""
        ...

    def reached(self, tell: Callable[[], object]) -> None:
        """Say when everything that was taken so far is done."""
        ...

    def wrote(self, done: Sequence[PreparedBatch], loop: asyncio.AbstractEventLoop) -> None:
        """Tell whoever watches what was written; called on that loop. Its audit files are kept by whoever wrote it."""
        ...

    def changed(self) -> None:
        """Tell whoever watches that another process wrote."""
        ...


class Apart:
    """The choice for one loop, made anew with each batch.

    Between processes a word takes longer than between threads; but a thread that writes stops everything else in between, and a process
    does not. Whoever has the turn gets what comes next once the other has nothing left, so that the order stays.
    """

    def __init__(self, terms: Terms, clock: Clock, thread: Thread, crowded: int, quiet: float) -> None:
        self.loop = asyncio.get_running_loop()
        self._terms = Frames.of(terms)
        # It gives up by itself where somebody else has the database for long; so it hangs if it takes many times as long.
        self._bounds = Bounds(_PATIENCE * terms.busy_millis / 1000, quiet)
        self._clock = clock
        self._thread = thread
        self._load = _Load(crowded)
        self._scribe: Scribe | None = None
        # They are written in order: while the last one is not, others may not be either.
        self._last_by_thread: asyncio.Future[Mapping[StreamId, int]] | None = None
        self._not_before = 0.0
        self._pause = _PAUSE
        self._is_closed = False

    @property
    def is_by_process(self) -> bool:
        """Tell whether the process has the turn; called from any thread."""
        scribe = self._scribe
        return scribe is not None and scribe.has_turn

    def write(self, batch: PreparedBatch) -> "asyncio.Future[Mapping[StreamId, int]]":
        """Return where the batch's streams end once it is durable."""
        scribe = self._scribe
        last = self._last_by_thread
        is_shared = (last is not None and not last.done()) or (scribe is not None and scribe.is_at_work)
        is_busy = self._load.note(is_shared)
        if scribe is None:
            if is_busy and time.monotonic() > self._not_before:
                self._start()
        elif scribe.has_turn:
            if is_busy or scribe.is_at_work:
                return scribe.write(batch)
            scribe.hold()
        elif is_busy and scribe.is_ready:
            scribe.take_turn()
            self._thread.reached(lambda: self.loop.call_soon_threadsafe(scribe.go))
            return scribe.write(batch)
        self._last_by_thread = self._thread.submit(batch)
        return self._last_by_thread

    def look(self) -> None:
        """Have the process see whether another one wrote; called from any thread."""
        scribe = self._scribe
        if scribe is not None:
            scribe.look()

    def finish(self) -> None:
        """Wait until the process has written everything that it was given."""
        self._is_closed = True
        if self._scribe is not None:
            self._scribe.finish()

    def close(self) -> None:
        """End the process, after everything that it was given is written."""
        self.finish()
        if self._scribe is not None:
            self._scribe.close()

    def _start(self) -> None:
        hears = Hears(self._wrote, self._thread.changed, self._left, self._lost)
        try:
            self._scribe = Scribe(self._terms, self._bounds, self._clock, hears)
        except OSError as error:
            self._do_without(f"cannot be started: {error.strerror}")

    def _wrote(self, done: Sequence[PreparedBatch]) -> None:
        self._thread.wrote(done, self.loop)

    def _left(self, death: Death) -> None:
        self._scribe = None
        # It did well as long as it was wanted.
        self._pause = _PAUSE
        self._thread.reached(death)

    def _lost(self, waiting: Sequence[Pending], death: Death) -> None:
        self._scribe = None
        self._thread.take_back(waiting, self.loop, death)
        if not self._is_closed:
            self._do_without("ended by itself")

    def _do_without(self, why: str) -> None:
        _LOG.warning("the process that writes %s; a thread does so for %.0f seconds at least", why, self._pause)
        self._not_before = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


class _Load:
    """How many batches came while others were under way, in this second and the one before."""

    def __init__(self, many: int) -> None:
        self._many = many
        self._since = 0.0
        self._counted = self._before = 0

    def note(self, is_shared: bool) -> bool:
        """Count a batch, and tell whether there are many."""
        now = time.monotonic()
        passed = now - self._since
        if passed >= 1:
            self._before = self._counted if passed < 2 else 0
            self._since, self._counted = now, 0
        self._counted += is_shared
        return max(self._before, self._counted) >= self._many
