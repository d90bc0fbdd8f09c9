"""The main program of a busy house's writer process: it receives orders, commits transactions and sends reports."""

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
    """Write for the process at the other end of the socket until it is gone."""
    # It ends with its parent, after its last report. Signals sent to the whole process group are not meant for it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # INVARIANT: leases end with their process, and so does this one. Otherwise it would write for an owner that no longer decides.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Another version would misread its orders, and report faults in a log that has none.
    if os.getppid() != parent or code != CODE:
        return
    with socket.socket(fileno=descriptor) as connection:
        connection.setblocking(True)
        work = _Work(_Reporter(connection))
        orders = select.poll()
        orders.register(connection, select.POLLIN)
        while True:
            if not orders.poll(_QUIET_MILLIS):
                work.rest()
            elif data := connection.recv(CHUNK):
                work.go_on(data)
            else:
                break
        work.close()


class _Reporter:
    """Sends reports to the house, and empty ones in between to show that this process is alive even while its work waits."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def say(self, report: WriteReport) -> None:
        """Send a report."""
        frame = Frames.of(report)
        with self._lock:
            self._connection.sendall(frame)

    def keep_beating(self) -> None:
        """Send an empty report now and at regular intervals from here on."""
        self.say(_NOTHING)
        threading.Thread(target=self._beat, name="curtainwall-beat", daemon=True).start()

    def _beat(self) -> None:
        # Ends when the other side is gone, as does everything else here.
        with contextlib.suppress(OSError):
            while True:
                time.sleep(BEAT)
                self.say(_NOTHING)


class _Work:
    """The work of the process: transactions, and the audit files of what it wrote."""

    def __init__(self, reporter: _Reporter) -> None:
        self._reporter = reporter
        self._frames = Frames()
        self._marks = _Marks()
        self._reader: Reader | None = None
        self._trail: Trail | None = None
        self._committer: Committer | None = None
        self._has_looked = False

    def go_on(self, data: bytes) -> None:
        """Carry out the orders in these bytes, all in one transaction."""
        orders: list[WriteOrder] = []
        for value in self._frames.take(data):
            if isinstance(value, WriterTerms):
                self._begin(value)
            else:
                orders.append(value)
        if orders:
            self._follow(orders)

    def rest(self) -> None:
        """Record how far audit files are complete. While the thread writes, no order arrives that would include it."""
        if self._committer is not None:
            self._committer.commit((), self._marks.take(), 0)

    def close(self) -> None:
        """Finish the audit files and close everything."""
        if self._committer is not None and self._trail is not None and self._reader is not None:
            self._trail.close()
            self._committer.commit((), self._marks.take(), 0)
            self._committer.close()
            self._reader.close()

    def _begin(self, terms: WriterTerms) -> None:
        home, key, busy_millis, decode = terms
        self._reader = Reader(home.database, busy_millis)
        self._trail = Trail(home, backlog_reader(self._reader), decode, self._marks.add)
        self._committer = Committer(home, key, busy_millis, self._trail.touch)
        gc.freeze()
        self._reporter.keep_beating()

    def _follow(self, orders: Sequence[WriteOrder]) -> None:
        assert self._committer is not None
        assert self._trail is not None
        batches = [batch for order in orders for batch in order.batches]
        now = orders[-1].now
        written = self._committer.commit(batches, self._marks.take(), now)
        was_changed = False
        if any(order.look for order in orders):
            # Nobody has seen what others wrote between the thread's last look and the first one here.
            was_changed = self._committer.was_changed() or not self._has_looked
            self._has_looked = True
            self._committer.prune(now)
            self._committer.report_more_behind()
        self._reporter.say(WriteReport(written, was_changed))
        done = (batch for batch, result in zip(batches, written, strict=True) if not isinstance(result, CurtainwallError))
        self._trail.touch([stream for batch in done for stream in batch.audited])


class _Marks:
    """How far audit files are complete: the audit thread adds to it, and the next commit records it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._upto: dict[StreamId, int] = {}

    def add(self, upto: Mapping[StreamId, int]) -> None:
        """Add marks."""
        with self._lock:
            self._upto.update(upto)

    def take(self) -> Mapping[StreamId, int]:
        """Return the marks added since the last call."""
        with self._lock:
            upto, self._upto = self._upto, {}
        return upto


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
