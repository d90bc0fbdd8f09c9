"""What runs in the process that writes for a busy house: orders come in, transactions are made, reports go out."""

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from curtainwall.model import CurtainwallError, StreamId
from curtainwall.store.audit.trail import Trail, backlog_reader
from curtainwall.store.database import Reader
from curtainwall.store.disk.committer import Committer
from curtainwall.store.disk.protocol import BEAT, CHUNK, CODE, Frames, WriteOrder, WriteReport, WriterTerms

_PR_SET_PDEATHSIG: Final = 1
_QUIET_MILLIS: Final = 1_000
_NOTHING: Final = WriteReport((), was_changed=False)


def main(descriptor: int, parent: int, code: str) -> None:
    """Write for the process at the other end until it is gone."""
    # It ends with whoever started it, after its last word: signals for a whole group of processes are not meant for it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # INVARIANT: leases end with their process, and so does this; or it would write for one that no longer decides.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # One of another version would misread what it is told, and find fault with a log that has none.
    if os.getppid() != parent or code != CODE:
        return
    with socket.socket(fileno=descriptor) as wire:
        wire.setblocking(True)
        work = _Work(_Reporter(wire))
        orders = select.poll()
        orders.register(wire, select.POLLIN)
        while True:
            if not orders.poll(_QUIET_MILLIS):
                work.rest()
            elif data := wire.recv(CHUNK):
                work.go_on(data)
            else:
                break
        work.close()


class _Reporter:
    """What the house hears: reports, and between them that this process lives, whatever its work waits for."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._lock = threading.Lock()

    def say(self, report: WriteReport) -> None:
        """Send a report."""
        frame = Frames.of(report)
        with self._lock:
            self._wire.sendall(frame)

    def keep_beating(self) -> None:
        """Send one about nothing now, and again and again from here on."""
        self.say(_NOTHING)
        threading.Thread(target=self._beat, name="curtainwall-beat", daemon=True).start()

    def _beat(self) -> None:
        # It ends where nobody hears it any more; so does everything else here.
        with contextlib.suppress(OSError):
            while True:
                time.sleep(BEAT)
                self.say(_NOTHING)


class _Work:
    """Everything that it does: transactions, and the audit files of what it wrote."""

    def __init__(self, voice: _Reporter) -> None:
        self._voice = voice
        self._frames = Frames()
        self._marks = _Marks()
        self._reader: Reader | None = None
        self._trail: Trail | None = None
        self._pen: Committer | None = None
        self._has_looked = False

    def go_on(self, data: bytes) -> None:
        """Do what is ordered by these bytes, all of it in one transaction."""
        orders: list[WriteOrder] = []
        for value in self._frames.take(data):
            if isinstance(value, WriterTerms):
                self._begin(value)
            else:
                orders.append(value)
        if orders:
            self._follow(orders)

    def rest(self) -> None:
        """Note how far audit files are complete: while somebody else writes, no order comes that takes it along."""
        if self._pen is not None:
            self._pen.commit((), self._marks.take(), 0)

    def close(self) -> None:
        """Finish the audit files, and let go of everything."""
        if self._pen is not None and self._trail is not None and self._reader is not None:
            self._trail.close()
            self._pen.commit((), self._marks.take(), 0)
            self._pen.close()
            self._reader.close()

    def _begin(self, terms: WriterTerms) -> None:
        home, key, busy_millis, decode = terms
        self._reader = Reader(home.database, busy_millis)
        self._trail = Trail(home, backlog_reader(self._reader), decode, self._marks.add)
        self._pen = Committer(home, key, busy_millis, self._trail.touch)
        gc.freeze()
        self._voice.keep_beating()

    def _follow(self, orders: Sequence[WriteOrder]) -> None:
        assert self._pen is not None
        assert self._trail is not None
        batches = [batch for order in orders for batch in order.batches]
        now = orders[-1].now
        written = self._pen.commit(batches, self._marks.take(), now)
        was_changed = False
        if any(order.look for order in orders):
            # Nobody saw what others wrote between the last look of the thread and the first one here.
            was_changed = self._pen.was_changed() or not self._has_looked
            self._has_looked = True
            self._pen.prune(now)
            self._pen.report_more_behind()
        self._voice.say(WriteReport(written, was_changed))
        done = (batch for batch, result in zip(batches, written, strict=True) if not isinstance(result, CurtainwallError))
        self._trail.touch([stream for batch in done for stream in batch.audited])


class _Marks:
    """How far audit files are complete: the thread that writes them says so, and the next commit takes it along."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._upto: dict[StreamId, int] = {}

    def add(self, upto: Mapping[StreamId, int]) -> None:
        """Note more."""
        with self._lock:
            self._upto.update(upto)

    def take(self) -> Mapping[StreamId, int]:
        """Return what was noted since."""
        with self._lock:
            upto, self._upto = self._upto, {}
        return upto


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
