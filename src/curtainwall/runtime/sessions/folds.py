"""States of sessions that are looked at: folded once, and from then on only by what is new."""

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from curtainwall.model import Log, StreamId
from curtainwall.session import SessionState, fold, lift

_PAGE: Final = 1_000
_MOST: Final = 256


class _Folded(NamedTuple):
    seq: int
    state: SessionState


class Folds:
    """What the log says of the sessions that were looked at lately. It may be asked from any thread."""

    def __init__(self, log: Log, most: int = _MOST) -> None:
        self._log = log
        self._most = most
        self._mine = threading.Lock()
        self._locks: dict[StreamId, threading.Lock] = {}
        self._kept: OrderedDict[StreamId, _Folded] = OrderedDict()

    def state(self, stream: StreamId) -> SessionState:
        """Return the state up to the end of the log; whoever comes while somebody else folds it waits for that."""
        with self._mine:
            lock = self._locks.setdefault(stream, threading.Lock())
        with lock:
            return self._folded(stream)

    def _folded(self, stream: StreamId) -> SessionState:
        """Fold on, page by page, so that a long log does not have to fit into memory."""
        seq, state = self._kept.pop(stream, None) or _Folded(0, SessionState())
        if seq > self._log.head(stream):
            # Another log than the one that was read: it was deleted, or rescued in part.
            seq, state = 0, SessionState()
        while page := self._log.read(stream, seq, _PAGE):
            state, seq = fold(map(lift, page), state), page[-1].seq
        with self._mine:
            if seq:
                self._kept[stream] = _Folded(seq, state)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            if len(self._locks) > 2 * self._most:
                self._locks = {name: lock for name, lock in self._locks.items() if name in self._kept or lock.locked()}
        return state
