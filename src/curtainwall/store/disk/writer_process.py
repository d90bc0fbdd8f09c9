"""A process that writes in this one's place while many batches are under way: when it is used, and how the two talk."""

import asyncio
import contextlib
import errno
import logging
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from curtainwall.model import Clock, CurtainwallError, StreamId
from curtainwall.store.disk.ledger import PreparedBatch
from curtainwall.store.disk.protocol import BEAT, CHUNK, CODE, Frames, WriteOrder, WriteReport, WriterTerms

_ENTRY: Final = "curtainwall.store.disk.scribe_entry"
_DYING: Final = 5.0


class ProcessLink:
    """It belongs to the loop that made it, and tells there what comes and that it is over; `wait_until_gone` may be called elsewhere."""

    def __init__(self, hears: Callable[[WriteReport], None], ended: Callable[[], None]) -> None:
        self.is_over = False
        self._loop = asyncio.get_running_loop()
        self._hears, self._ended = hears, ended
        self._frames = Frames()
        self._unsent = bytearray()
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _start(theirs.fileno())
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._read)

    def send(self, frame: bytes) -> None:
        """Send a frame, now or as soon as there is room."""
        self._unsent += frame
        self._push()

    def close_input(self) -> None:
        """Tell it that nothing more comes: it finishes what it has, and ends."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def wait(self, seconds: float) -> bool:
        """Hold up everything else until something was heard or sent; tell whether anything was."""
        ready = select.poll()
        # Both at once: it stops reading while nobody takes its reports.
        ready.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        if not ready.poll(seconds * 1000):
            return False
        if self._unsent:
            self._push()
        self._read()
        return True

    def cut(self) -> None:
        """Kill it, and let go of everything."""
        if self.is_over:
            return
        self.is_over = True
        # A loop that was closed has let go of it.
        with contextlib.suppress(RuntimeError):
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket.close()
        self._process.kill()
        self._ended()

    def wait_until_gone(self) -> None:
        """Wait until it has died of that. One that the disk holds may take longer than anybody waits; it does nothing more by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DYING)

    def _push(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            # Its end is read as well, and told there.
            self._unsent.clear()
            sent = 0
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._socket, self._push)
        else:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for report in self._frames.take(data):
            self._hears(report)
        if not data:
            self.cut()


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    if not sys.executable:
        # So it is where Python is a part of another program.
        raise FileNotFoundError(errno.ENOENT, "it is not known which program runs Python")
    # Not from the directory where we happen to be, nor from where an environment says that we do not heed: that is not ours.
    alone = "-I" if sys.flags.ignore_environment else "-P"
    return subprocess.Popen(
        [sys.executable, alone, "-m", _ENTRY, str(descriptor), str(os.getpid()), CODE],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


_MISSED: Final = 4
_MISSED_AT_THE_START: Final = 120
_LAST_WORDS: Final = 5.0

Pending = tuple[PreparedBatch, "asyncio.Future[Mapping[StreamId, int]]"]

WaitForEnd = Callable[[], None]
"""Waits until a process that was killed is dead."""


class ProcessListener(NamedTuple):
    """Who hears of what a scribe does; each is called on its loop.

    Its end is told once, with a way to wait until it is dead: as `left` where it was sent away with nothing left to do, otherwise as
    `lost`, with what it was given and did not answer.
    """

    wrote: Callable[[Sequence[PreparedBatch]], None]
    changed: Callable[[], None]
    left: Callable[[WaitForEnd], None]
    lost: Callable[[Sequence[Pending], WaitForEnd], None]


class ProcessBounds(NamedTuple):
    """For how many seconds one may have work and answer nothing, though it lives; and for how many it stays without work."""

    patience: float
    quiet: float


class _Life(Enum):
    STARTING = auto()
    READY = auto()
    LEAVING = auto()


class WriterProcess:
    """One such process, from its start to its end. It belongs to the loop that started it; only `look` may be called elsewhere.

    It is an addition and never a need: where it dies, falls silent or gets nowhere, it is killed, and whoever hears that it is `lost` goes
    on in its place.
    """

    def __init__(self, terms: bytes, bounds: ProcessBounds, clock: Clock, hears: ProcessListener) -> None:
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
        self._wire = ProcessLink(self._hear, self._end)
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
            self._wire.send(Frames.of(WriteOrder(self._clock.now(), batches, look)))

    def _look(self) -> None:
        self._is_looking = True
        self._flush_soon()

    def _hear(self, report: WriteReport) -> None:
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
        self._wire.close_input()

    def _end(self) -> None:
        self._next_beat.cancel()
        waiting = list(self._waiting)
        self._waiting.clear()
        if self._life is _Life.LEAVING:
            self._hears.left(self._wire.wait_until_gone)
        else:
            self._hears.lost(waiting, self._wire.wait_until_gone)


_PAUSE, _LONGEST_PAUSE = 1.0, 600.0
_PATIENCE: Final = 10
_LOG = logging.getLogger(__name__)


class WriterThread(Protocol):
    """The thread that writes otherwise."""

    def submit(self, batch: PreparedBatch) -> "asyncio.Future[Mapping[StreamId, int]]":
        """Take a batch."""
        ...

    def take_back(self, waiting: Sequence[Pending], loop: asyncio.AbstractEventLoop, death: WaitForEnd) -> None:
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


class WriterSwitch:
    """The choice for one loop, made anew with each batch.

    Between processes a word takes longer than between threads; but a thread that writes stops everything else in between, and a process
    does not. Whoever has the turn gets what comes next once the other has nothing left, so that the order stays.
    """

    def __init__(self, terms: WriterTerms, clock: Clock, thread: WriterThread, crowded: int, quiet: float) -> None:
        self.loop = asyncio.get_running_loop()
        self._terms = Frames.of(terms)
        # It gives up by itself where somebody else has the database for long; so it hangs if it takes many times as long.
        self._bounds = ProcessBounds(_PATIENCE * terms.busy_millis / 1000, quiet)
        self._clock = clock
        self._thread = thread
        self._load = _Load(crowded)
        self._scribe: WriterProcess | None = None
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
        hears = ProcessListener(self._wrote, self._thread.changed, self._left, self._lost)
        try:
            self._scribe = WriterProcess(self._terms, self._bounds, self._clock, hears)
        except OSError as error:
            self._do_without(f"cannot be started: {error.strerror}")

    def _wrote(self, done: Sequence[PreparedBatch]) -> None:
        self._thread.wrote(done, self.loop)

    def _left(self, death: WaitForEnd) -> None:
        self._scribe = None
        # It did well as long as it was wanted.
        self._pause = _PAUSE
        self._thread.reached(death)

    def _lost(self, waiting: Sequence[Pending], death: WaitForEnd) -> None:
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
