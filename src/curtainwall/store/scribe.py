"""A process that writes in this one's place, so that a commit and our own work go on side by side."""

import asyncio
import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from curtainwall.model import Clock, CurtainwallError, StreamId
from curtainwall.store.frames import CHUNK, CODE, Frames, Order, Report
from curtainwall.store.prepared import PreparedBatch

_ENTRY: Final = "curtainwall.store.scribe_entry"
_LAST_WORDS: Final = 5.0

Pending = tuple[PreparedBatch, "asyncio.Future[Mapping[StreamId, int]]"]


class Hears(NamedTuple):
    """Who hears of what a scribe does; each is called on its loop."""

    wrote: Callable[[Sequence[PreparedBatch]], None]
    changed: Callable[[], None]
    lost: Callable[[Sequence[Pending]], None]


class Scribe:
    """One such process, from its start to its end. It belongs to the loop that started it; only `look` may be called elsewhere.

    It is an addition and never a need: where it ends by itself, whoever is `lost` gets back what it was given and is unsure about.
    """

    def __init__(self, terms: bytes, patience: float, clock: Clock, hears: Hears) -> None:
        self.loop = asyncio.get_running_loop()
        self._clock = clock
        self._hears = hears
        self._patience = patience
        self._frames = Frames()
        self._waiting: deque[Pending] = deque()
        self._batches: list[PreparedBatch] = []
        self._unsent = bytearray()
        self.is_ready = False
        self._is_looking = self._is_flushing = self._is_going = self._is_over = False
        self._moved = time.monotonic()
        self._wire, theirs = socket.socketpair()
        try:
            with theirs:
                # Not from the directory where we happen to be, nor from where an environment says that we do not heed: that is not ours.
                alone = "-I" if sys.flags.ignore_environment else "-P"
                words = [sys.executable, alone, "-m", _ENTRY, str(theirs.fileno()), str(os.getpid()), CODE]
                self._process = subprocess.Popen(
                    words,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                )
        except OSError:
            self._wire.close()
            raise
        self._wire.setblocking(False)
        self.loop.add_reader(self._wire, self._read)
        self._send(terms)

    @property
    def is_at_work(self) -> bool:
        """Tell whether it has something that is not written yet."""
        return bool(self._waiting)

    def write(self, batch: PreparedBatch) -> "asyncio.Future[Mapping[StreamId, int]]":
        """Return where the batch's streams end once it is durable."""
        future: asyncio.Future[Mapping[StreamId, int]] = self.loop.create_future()
        if not self._waiting:
            self._moved = time.monotonic()
        self._waiting.append((batch, future))
        self._batches.append(batch)
        self._flush_soon()
        return future

    def go(self) -> None:
        """Begin to write: nobody else has anything left that came before."""
        self._is_going = True
        self._flush()

    def hold(self) -> None:
        """Write nothing for now: somebody else does."""
        self._is_going = False

    def look(self) -> None:
        """See whether another process wrote."""
        # A loop that was closed has nobody left who watches.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._look)

    def finish(self) -> None:
        """Wait until everything that was given is written."""
        if self._is_over:
            return
        if self._waiting and self.loop.is_closed():
            # Nobody is left there who could be told: that is known to whoever takes it back.
            self._lose()
            return
        self.go()
        wire = select.poll()
        while self._waiting:
            # Both at once: it stops reading while nobody takes its reports.
            wire.register(self._wire, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            if not wire.poll(self._patience * 1000):
                self._lose()
            else:
                self._push()
                self._read()

    def close(self) -> None:
        """End the process, after everything that was given is written."""
        self.finish()
        if self._is_over:
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if self.is_ready:
                self._wire.shutdown(socket.SHUT_WR)
                self._process.wait(_LAST_WORDS)
        self._end()

    def _flush_soon(self) -> None:
        """Send once for everything that comes in one round of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if not self._is_going or self._is_over:
            return
        batches, self._batches = self._batches, []
        look, self._is_looking = self._is_looking, False
        if batches or look:
            self._send(Frames.of(Order(self._clock.now(), batches, look)))

    def _send(self, frame: bytes) -> None:
        self._unsent += frame
        self._push()

    def _push(self) -> None:
        try:
            sent = self._wire.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            # Its end is read as well, and told there.
            self._unsent.clear()
            return
        del self._unsent[:sent]
        if self._unsent:
            self.loop.add_writer(self._wire, self._push)
        else:
            self.loop.remove_writer(self._wire)

    def _read(self) -> None:
        try:
            data = self._wire.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._hear(data)
        else:
            self._lose()

    def _hear(self, data: bytes) -> None:
        self._moved = time.monotonic()
        for report in self._frames.take(data):
            assert isinstance(report, Report)
            self.is_ready = True
            self._settle(report)

    def _settle(self, report: Report) -> None:
        done: list[PreparedBatch] = []
        for result in report.written:
            batch, future = self._waiting.popleft()
            if isinstance(result, CurtainwallError):
                if not future.done():
                    future.set_exception(result)
                continue
            done.append(batch)
            if not future.done():
                future.set_result(result)
        if done:
            self._hears.wrote(done)
        if report.was_changed:
            self._hears.changed()

    def _look(self) -> None:
        if self._is_over:
            return
        if self._waiting and time.monotonic() - self._moved > self._patience:
            self._lose()
        else:
            self._is_looking = True
            self._flush_soon()

    def _lose(self) -> None:
        waiting = list(self._waiting)
        self._waiting.clear()
        self._end()
        self._hears.lost(waiting)

    def _end(self) -> None:
        self._is_over = True
        # A loop that was closed has let go of it.
        with contextlib.suppress(RuntimeError):
            self.loop.remove_reader(self._wire)
            self.loop.remove_writer(self._wire)
        self._wire.close()
        self._process.kill()
        # It holds the database's lock until it is gone: nobody else writes before that, also where it takes long to die.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WORDS)
