"""What runs in the process that writes for a busy house: orders come in, transactions are made, reports go out."""

import ctypes
import gc
import os
import signal
import socket
import sys
from typing import Final

from curtainwall.model import StreamId
from curtainwall.store.desk import Desk
from curtainwall.store.frames import CHUNK, Frames, Order, Report, Terms

_PR_SET_PDEATHSIG: Final = 1


def main(descriptor: int, parent: int) -> None:
    """Write for the process at the other end until it is gone."""
    # It ends with whoever started it, after its last word: signals for a whole group of processes are not meant for it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # INVARIANT: leases end with their process, and so does this; or it would write for one that no longer decides.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    with socket.socket(fileno=descriptor) as wire:
        wire.setblocking(True)
        _work(wire, Frames())


def _work(wire: socket.socket, frames: Frames) -> None:
    behind: list[StreamId] = []
    desk: Desk | None = None
    while data := wire.recv(CHUNK):
        orders: list[Order] = []
        for value in frames.take(data):
            if isinstance(value, Terms):
                desk = Desk(*value, behind.extend)
                gc.freeze()
                wire.sendall(Frames.of(Report((), was_changed=False, behind=())))
            else:
                orders.append(value)
        if desk is None or not orders:
            continue
        batches = [batch for order in orders for batch in order.batches]
        marks = {stream: upto for order in orders for stream, upto in order.marks.items()}
        now = orders[-1].now
        written = desk.commit(batches, marks, now)
        was_changed = False
        if any(order.look for order in orders):
            was_changed = desk.was_changed()
            desk.prune(now)
        wire.sendall(Frames.of(Report(written, was_changed, tuple(behind))))
        behind.clear()
    if desk is not None:
        desk.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
