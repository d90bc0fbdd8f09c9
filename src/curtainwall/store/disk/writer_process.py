"""A separate process that writes while many batches are pending: when it is used, and how the two communicate."""

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
    """The connection to a writer process. Its callbacks run on the loop that created it; only `wait_until_gone` may be called elsewhere."""

    def __init__(self, on_report: Callable[[WriteReport], None], on_end: Callable[[], None]) -> None:
        self.is_over = False
        self._loop = asyncio.get_running_loop()
        self._on_report, self._on_end = on_report, on_end
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
        """Send a frame now, or as soon as the socket accepts it."""
        self._unsent += frame
        self._push()

    def close_input(self) -> None:
        """Signal that nothing more follows. The process finishes its work and exits."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def wait(self, seconds: float) -> bool:
        """Block until something was received or sent, and return whether anything was."""
        ready = select.poll()
        # Poll both directions: the process stops reading while nobody takes its reports.
        ready.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        if not ready.poll(seconds * 1000):
            return False
        if self._unsent:
            self._push()
        self._read()
        return True

    def cut(self) -> None:
        """Kill the process and release everything."""
        if self.is_over:
            return
        self.is_over = True
        # A loop that was closed has already dropped the socket.
        with contextlib.suppress(RuntimeError):
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket.close()
        self._process.kill()
        self._on_end()

    def wait_until_gone(self) -> None:
        """Wait until the killed process is dead. One blocked on the disk may take longer than we wait, but it does nothing more."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DYING)

    def _push(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            # `_read` notices the end of the process and reports it.
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
            self._on_report(report)
        if not data:
            self.cut()


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    if not sys.executable:
        # This happens where Python is embedded in another program.
        raise FileNotFoundError(errno.ENOENT, "it is not known which program runs Python")
    # Do not import from the current directory, nor from an environment that we ignore ourselves: that code is not ours.
    isolation = "-I" if sys.flags.ignore_environment else "-P"
    return subprocess.Popen(
        [sys.executable, isolation, "-m", _ENTRY, str(descriptor), str(os.getpid()), CODE],
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
    """Callbacks for what a writer process does; each is called on its loop.

    Its end is reported once, with a function that waits until it is dead: as `left` if it was dismissed with nothing left to do, otherwise
    as `lost`, with the batches it had not answered.
    """

    wrote: Callable[[Sequence[PreparedBatch]], None]
    changed: Callable[[], None]
    left: Callable[[WaitForEnd], None]
    lost: Callable[[Sequence[Pending], WaitForEnd], None]


class ProcessBounds(NamedTuple):
    """Limits in seconds: how long a live process may leave work unanswered, and how long it is kept without work."""

    patience: float
    quiet: float


class _Life(Enum):
    STARTING = auto()
    READY = auto()
    LEAVING = auto()


class WriterProcess:
    """One writer process, from start to end. It belongs to the loop that started it; only `look` may be called elsewhere.

    It is optional: if it dies, falls silent or makes no progress, it is killed, and the receiver of `lost` continues in its place.
    """

    def __init__(self, terms: bytes, bounds: ProcessBounds, clock: Clock, listener: ProcessListener) -> None:
        self.loop = asyncio.get_running_loop()
        self.has_turn = False
        self._clock = clock
        self._listener = listener
        self._bounds = bounds
        self._life = _Life.STARTING
        self._waiting: deque[Pending] = deque()
        self._batches: list[PreparedBatch] = []
        self._is_looking = self._is_flushing = self._may_write = False
        self._missed = 0
        self._last_progress = time.monotonic()
        self._link = ProcessLink(self._receive, self._end)
        self._link.send(terms)
        self._next_beat = self.loop.call_later(BEAT, self._count_beat)

    @property
    def is_ready(self) -> bool:
        """Tell whether the process can take its turn."""
        return self._life is _Life.READY

    @property
    def is_at_work(self) -> bool:
        """Tell whether the process has batches that are not written yet."""
        return bool(self._waiting)

    def take_turn(self) -> None:
        """Collect batches from here on, without sending them until `go`."""
        self.has_turn = True

    def go(self) -> None:
        """Start writing: all earlier batches are done."""
        self._may_write = True
        self._flush()

    def hold(self) -> None:
        """Stop writing for now: the thread writes."""
        self.has_turn = self._may_write = False

    def write(self, batch: PreparedBatch) -> "asyncio.Future[Mapping[StreamId, int]]":
        """Return where the batch's streams end once it is durable."""
        future: asyncio.Future[Mapping[StreamId, int]] = self.loop.create_future()
        if not self._waiting:
            self._last_progress = time.monotonic()
        self._waiting.append((batch, future))
        self._batches.append(batch)
        self._flush_soon()
        return future

    def look(self) -> None:
        """Check whether another process wrote."""
        # Nobody watches on a loop that was closed.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._look)

    def finish(self) -> None:
        """Wait until all batches are written."""
        if self._waiting and self.loop.is_closed():
            # Results cannot be delivered on a closed loop; taking the batches back accounts for that.
            self._link.cut()
        self.go()
        while self._waiting:
            self._wait_for_report(self._last_progress + self._bounds.patience)

    def close(self) -> None:
        """End the process after all batches are written."""
        self.finish()
        has_begun = self._life is not _Life.STARTING
        self._leave()
        deadline = time.monotonic() + _LAST_WORDS
        while has_begun and not self._link.is_over:
            self._wait_for_report(deadline)
        self._link.cut()

    def _flush_soon(self) -> None:
        """Send once for everything that arrives in one iteration of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if not self._may_write or self._link.is_over:
            return
        batches, self._batches = self._batches, []
        look, self._is_looking = self._is_looking, False
        if batches or look:
            self._link.send(Frames.of(WriteOrder(self._clock.now(), batches, look)))

    def _look(self) -> None:
        self._is_looking = True
        self._flush_soon()

    def _receive(self, report: WriteReport) -> None:
        self._missed = 0
        if self._life is _Life.STARTING:
            self._life = _Life.READY
        if report.written:
            self._last_progress = time.monotonic()
            self._settle(report.written)
        if report.was_changed:
            self._listener.changed()

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
            self._listener.wrote(done)

    def _wait_for_report(self, deadline: float) -> None:
        if not self._link.wait(_MISSED * BEAT) or time.monotonic() > deadline:
            self._link.cut()

    def _count_beat(self) -> None:
        """Check that the process is alive, makes progress and is still needed.

        Beats are counted, not seconds: if this process, or both, were suspended for a while, nothing is wrong.
        """
        self._next_beat = self.loop.call_later(BEAT, self._count_beat)
        self._missed += 1
        passed = time.monotonic() - self._last_progress
        if self._missed > (_MISSED_AT_THE_START if self._life is _Life.STARTING else _MISSED):
            self._link.cut()
        elif self._waiting:
            if passed > self._bounds.patience:
                self._link.cut()
        elif self.is_ready and passed > self._bounds.quiet:
            self._leave()

    def _leave(self) -> None:
        self._life = _Life.LEAVING
        self.hold()
        self._link.close_input()

    def _end(self) -> None:
        self._next_beat.cancel()
        waiting = list(self._waiting)
        self._waiting.clear()
        if self._life is _Life.LEAVING:
            self._listener.left(self._link.wait_until_gone)
        else:
            self._listener.lost(waiting, self._link.wait_until_gone)


_PAUSE, _LONGEST_PAUSE = 1.0, 600.0
_PATIENCE: Final = 10
_LOG = logging.getLogger(__name__)


class WriterThread(Protocol):
    """The thread that writes when the process does not."""

    def submit(self, batch: PreparedBatch) -> "asyncio.Future[Mapping[StreamId, int]]":
        """Queue a batch for the thread."""
        ...

    def take_back(self, waiting: Sequence[Pending], loop: asyncio.AbstractEventLoop, death: WaitForEnd) -> None:
        """Take over batches, with their futures, from a process that is dying."""
        ...

    def reached(self, tell: Callable[[], object]) -> None:
        """Call `tell` when everything accepted so far is done."""
        ...

    def wrote(self, done: Sequence[PreparedBatch], loop: asyncio.AbstractEventLoop) -> None:
        """Notify watchers of what the process wrote; called on its loop. The process updates the audit files itself."""
        ...

    def changed(self) -> None:
        """Notify watchers that another process wrote."""
        ...


class WriterSwitch:
    """Chooses between thread and process for each batch of one loop.

    A message to a process takes longer than one to a thread, but a writing thread interrupts everything else here, and a process does not.
    The turn passes from one to the other only when the other has nothing left, so that batches stay in order.
    """

    def __init__(self, terms: WriterTerms, clock: Clock, thread: WriterThread, crowded: int, quiet: float) -> None:
        self.loop = asyncio.get_running_loop()
        self._terms = Frames.of(terms)
        # The process gives up when the database stays locked, so if it takes many times that long, it hangs.
        self._bounds = ProcessBounds(_PATIENCE * terms.busy_millis / 1000, quiet)
        self._clock = clock
        self._thread = thread
        self._load = _Load(crowded)
        self._process: WriterProcess | None = None
        # Batches are written in order: while the last one is pending, others may be too.
        self._last_by_thread: asyncio.Future[Mapping[StreamId, int]] | None = None
        self._not_before = 0.0
        self._pause = _PAUSE
        self._is_closed = False

    @property
    def is_by_process(self) -> bool:
        """Tell whether it is the process's turn; may be called from any thread."""
        process = self._process
        return process is not None and process.has_turn

    def write(self, batch: PreparedBatch) -> "asyncio.Future[Mapping[StreamId, int]]":
        """Return where the batch's streams end once it is durable."""
        process = self._process
        last = self._last_by_thread
        is_shared = (last is not None and not last.done()) or (process is not None and process.is_at_work)
        is_busy = self._load.note(is_shared)
        if process is None:
            if is_busy and time.monotonic() > self._not_before:
                self._start()
        elif process.has_turn:
            if is_busy or process.is_at_work:
                return process.write(batch)
            process.hold()
        elif is_busy and process.is_ready:
            process.take_turn()
            self._thread.reached(lambda: self.loop.call_soon_threadsafe(process.go))
            return process.write(batch)
        self._last_by_thread = self._thread.submit(batch)
        return self._last_by_thread

    def look(self) -> None:
        """Have the process check whether another one wrote; may be called from any thread."""
        process = self._process
        if process is not None:
            process.look()

    def finish(self) -> None:
        """Wait until the process has written all its batches."""
        self._is_closed = True
        if self._process is not None:
            self._process.finish()

    def close(self) -> None:
        """End the process after all its batches are written."""
        self.finish()
        if self._process is not None:
            self._process.close()

    def _start(self) -> None:
        listener = ProcessListener(self._wrote, self._thread.changed, self._left, self._lost)
        try:
            self._process = WriterProcess(self._terms, self._bounds, self._clock, listener)
        except OSError as error:
            self._pause_process(f"cannot be started: {error.strerror}")

    def _wrote(self, done: Sequence[PreparedBatch]) -> None:
        self._thread.wrote(done, self.loop)

    def _left(self, death: WaitForEnd) -> None:
        self._process = None
        # It worked well while it was needed.
        self._pause = _PAUSE
        self._thread.reached(death)

    def _lost(self, waiting: Sequence[Pending], death: WaitForEnd) -> None:
        self._process = None
        self._thread.take_back(waiting, self.loop, death)
        if not self._is_closed:
            self._pause_process("ended by itself")

    def _pause_process(self, why: str) -> None:
        _LOG.warning("the process that writes %s; a thread does so for %.0f seconds at least", why, self._pause)
        self._not_before = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


class _Load:
    """Counts the batches that arrived while others were pending, in this second and the previous one."""

    def __init__(self, many: int) -> None:
        self._many = many
        self._since = 0.0
        self._counted = self._before = 0

    def note(self, is_shared: bool) -> bool:
        """Count a batch and return whether there are many."""
        now = time.monotonic()
        passed = now - self._since
        if passed >= 1:
            self._before = self._counted if passed < 2 else 0
            self._since, self._counted = now, 0
        self._counted += is_shared
        return max(self._before, self._counted) >= self._many
