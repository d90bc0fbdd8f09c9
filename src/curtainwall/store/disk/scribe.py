"""A process that writes in this one's place, so that a commit and our own work go on side by side."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from curtainwall.model import Clock, CurtainwallError, StreamId
from curtainwall.store.disk.frames import BEAT, Frames, Order, Report
from curtainwall.store.disk.prepared import PreparedBatch
from curtainwall.store.disk.wire import Wire

_MISSED: Final = 4
_MISSED_AT_THE_START: Final = 120
_LAST_WORDS: Final = 5.0

Pending = tuple[PreparedBatch, "asyncio.Future[Mapping[StreamId, int]]"]

Death = Callable[[], None]
"""Waits until a process that was killed is dead."""


class Hears(NamedTuple):
    """Who hears of what a scribe does; each is called on its loop.

    Its end is told once, with a way to wait until it is dead: as `left` where it was sent away with nothing left to do, otherwise as
    `lost`, with what it was given and did not answer.
    """

    wrote: Callable[[Sequence[PreparedBatch]], None]
    changed: Callable[[], None]
    left: Callable[[Death], None]
    lost: Callable[[Sequence[Pending], Death], None]


class Bounds(NamedTuple):
    """For how many seconds one may have work and answer nothing, though it lives; and for how many it stays without work."""

    patience: float
    quiet: float


class _Life(Enum):
    STARTING = auto()
    READY = auto()
    LEAVING = auto()


class Scribe:
    """One such process, from its start to its end. It belongs to the loop that started it; only `look` may be called elsewhere.

    It is an addition and never a need: where it dies, falls silent or gets nowhere, it is killed, and whoever hears that it is `lost` goes
    on in its place.
    """

    def __init__(self, terms: bytes, bounds: Bounds, clock: Clock, hears: Hears) -> None:
        self.loop = asyncio.get_running_loop()
        self.has_turn = False
        self._clock = clock
        self._hears = hears
        self._bounds = bounds
        self._life = _Life.STARTING
        self._waiting: deque[Pending] = deque()
        self._batches: list[PreparedBatch] = []
        self._is_looking = self._is_flushing = self._is_going = False
        self._missed = 0
        self._moved = time.monotonic()
        self._wire = Wire(self._hear, self._end)
        self._wire.send(terms)
        self._next_beat = self.loop.call_later(BEAT, self._count_beat)

    @property
    def is_ready(self) -> bool:
        """Tell whether it can be given the turn."""
        return self._life is _Life.READY

    @property
    def is_at_work(self) -> bool:
        """Tell whether it has something that is not written yet."""
        return bool(self._waiting)

    def take_turn(self) -> None:
        """Keep what comes from here on, until it may `go`."""
        self.has_turn = True

    def go(self) -> None:
        """Begin to write: nobody else has anything left that came before."""
        self._is_going = True
        self._flush()

    def hold(self) -> None:
        """Write nothing for now: somebody else does."""
        self.has_turn = self._is_going = False

    def write(self, batch: PreparedBatch) -> "asyncio.Future[Mapping[StreamId, int]]":
        """Return where the batch's streams end once it is durable."""
        future: asyncio.Future[Mapping[StreamId, int]] = self.loop.create_future()
        if not self._waiting:
            self._moved = time.monotonic()
        self._waiting.append((batch, future))
        self._batches.append(batch)
        self._flush_soon()
        return future

    def look(self) -> None:
        """See whether another process wrote."""
        # A loop that was closed has nobody left who watches.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._look)

    def finish(self) -> None:
        """Wait until everything that was given is written."""
        if self._waiting and self.loop.is_closed():
            # Nobody is left there who could be told: that is known to whoever takes it back.
            self._wire.cut()
        self.go()
        while self._waiting:
            self._hear_more(self._moved + self._bounds.patience)

    def close(self) -> None:
        """End the process, after everything that was given is written."""
        self.finish()
        has_begun = self._life is not _Life.STARTING
        self._leave()
        until = time.monotonic() + _LAST_WORDS
        while has_begun and not self._wire.is_over:
            self._hear_more(until)
        self._wire.cut()

    def _flush_soon(self) -> None:
        """Send once for everything that comes in one round of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if not self._is_going or self._wire.is_over:
            return
        batches, self._batches = self._batches, []
        look, self._is_looking = self._is_looking, False
        if batches or look:
            self._wire.send(Frames.of(Order(self._clock.now(), batches, look)))

    def _look(self) -> None:
        self._is_looking = True
        self._flush_soon()

    def _hear(self, report: Report) -> None:
        self._missed = 0
        if self._life is _Life.STARTING:
            self._life = _Life.READY
        if report.written:
            self._moved = time.monotonic()
            self._settle(report.written)
        if report.was_changed:
            self._hears.changed()

    def _settle(self, written: Sequence[Mapping[StreamId, int] | CurtainwallError]) -> None:
        done: list[PreparedBatch] = []
        for result in written:
            batch, future = self._waiting.popleft()
            if not isinstance(result, CurtainwallError):
                done.append(batch)
            if future.done():
                continue
            if isinstance(result, CurtainwallError):
                future.set_exception(result)
            else:
                future.set_result(result)
        if done:
            self._hears.wrote(done)

    def _hear_more(self, until: float) -> None:
        if not self._wire.wait(_MISSED * BEAT) or time.monotonic() > until:
            self._wire.cut()

    def _count_beat(self) -> None:
        """See whether it lives, gets on, and is of use.

        Beats are counted, not seconds: where both of us were stopped for a while, or only this one, nothing is wrong.
        """
        self._next_beat = self.loop.call_later(BEAT, self._count_beat)
        self._missed += 1
        passed = time.monotonic() - self._moved
        if self._missed > (_MISSED_AT_THE_START if self._life is _Life.STARTING else _MISSED):
            self._wire.cut()
        elif self._waiting:
            if passed > self._bounds.patience:
                self._wire.cut()
        elif self.is_ready and passed > self._bounds.quiet:
            self._leave()

    def _leave(self) -> None:
        self._life = _Life.LEAVING
        self.hold()
        self._wire.say_goodbye()

    def _end(self) -> None:
        self._next_beat.cancel()
        waiting = list(self._waiting)
        self._waiting.clear()
        if self._life is _Life.LEAVING:
            self._hears.left(self._wire.wait_until_gone)
        else:
            self._hears.lost(waiting, self._wire.wait_until_gone)
