"""Folds a session's log, starting from a snapshot of an earlier fold if one matches the log, otherwise from the first entry."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import field
from typing import Final

from curtainwall import session
from curtainwall.model import (
    CHAIN_START,
    Broken,
    CurtainwallError,
    Entry,
    FoldSnapshot,
    FoldSnapshots,
    Log,
    StreamEnd,
    StreamId,
    entry_hash,
    record,
)
from curtainwall.session import SessionState, fold, lift, logged_bytes

# Start-up time: names accessed as `session.…` are loaded on first use, and a listing folds nothing.

_LOG = logging.getLogger(__name__)
_PAGE: Final = 1_000
_MOST: Final = 256

SNAPSHOT_EVERY: Final = 500
"""How many entries a fold must be ahead of its snapshot before a new one is made. Reading fewer takes no noticeable time."""


@record
class FoldedLog:
    """A session's state at a place in its log."""

    state: SessionState = field(default_factory=SessionState)
    seq: int = 0
    logged: int = 0
    """The size of the log up to there, in bytes."""
    is_checked: bool = False
    """Whether the entries read are chained to each other, to the snapshot before them, and to a head that we sealed."""
    hash: bytes | None = CHAIN_START
    """The hash of the last entry, or None if it is not known."""
    saved: int = 0
    """Where the newest known snapshot ends."""


class SessionFolds:
    """Folds the logs of sessions, and saves long folds for the next time. May be used from any thread."""

    def __init__(self, log: Log, snapshots: FoldSnapshots | None = None, every: int = SNAPSHOT_EVERY) -> None:
        self._log = log
        self._snapshots = snapshots
        self._every = every

    def fold(self, stream: StreamId) -> FoldedLog:
        """Return the fold of a whole log.

        A snapshot is used only if the log from its entry on is what we wrote. Otherwise the whole log is folded as if there were no
        snapshot, and whatever is wrong shows as it would without one.
        """
        start = self._from_snapshot(stream)
        if start is not None:
            try:
                folded = self.fold_on(stream, start)
            except Broken:
                folded = start
            if folded.is_checked:
                return folded
        return self.fold_on(stream, FoldedLog())

    def fold_on(self, stream: StreamId, begun: FoldedLog) -> FoldedLog:
        """Continue a fold to the end of the log, page by page, so that a long log need not fit into memory."""
        state, seq, logged = begun.state, begun.seq, begun.logged
        # INVARIANT: the end is read first. If others write meanwhile, the entries read reach further than it, never less far.
        end = None if self._snapshots is None else self._snapshots.end(stream)
        chain = None if end is None or begun.hash is None else _Chain(stream, StreamEnd(seq, begun.hash), end)
        while page := self._log.read(stream, seq, _PAGE):
            events = [lift(entry) for entry in page]
            state = fold(events, state)
            logged += logged_bytes((entry.payload for entry in page), events)
            seq = page[-1].seq
            if chain is not None:
                chain.take(page)
        if chain is None:
            # A new session has no head, and nothing that could be wrong.
            return FoldedLog(state, seq, logged, is_checked=seq == 0, hash=CHAIN_START if seq == 0 else None, saved=begun.saved)
        if not chain.holds:
            _LOG.warning("the log of `%s` is not what was written: run `curtainwall audit verify`", stream)
        return FoldedLog(state, seq, logged, chain.holds, chain.last.hash if chain.holds else None, begun.saved)

    def is_due(self, folded: FoldedLog) -> bool:
        """Tell whether a fold is worth a new snapshot."""
        return self._snapshots is not None and folded.is_checked and folded.seq - folded.saved >= self._every

    def save(self, stream: StreamId, folded: FoldedLog) -> bool:
        """Save a snapshot and return whether that worked. It takes no lock, and nothing depends on it."""
        try:
            digest = folded.hash if folded.hash is not None else self._hash_at_end(stream, folded.seq)
            payload = session.encode_fold(session.KeptFold(folded.state, folded.logged))
            if self._snapshots is None or digest is None or payload is None:
                return False
            return self._snapshots.save(FoldSnapshot(stream, StreamEnd(folded.seq, digest), session.FOLD_VERSION, payload))
        except CurtainwallError:
            return False

    def forget(self, stream: StreamId) -> None:
        """Remove a session's snapshot."""
        if self._snapshots is not None:
            self._snapshots.remove(stream)

    def _hash_at_end(self, stream: StreamId, seq: int) -> bytes | None:
        """Return the hash of an entry if it is the last one according to a head that we sealed."""
        end = None if self._snapshots is None else self._snapshots.end(stream)
        return end.hash if end is not None and end.seq == seq else None

    def _from_snapshot(self, stream: StreamId) -> FoldedLog | None:
        snapshot = None if self._snapshots is None else self._snapshots.load(stream, session.FOLD_VERSION)
        decoded = None if snapshot is None else session.decode_fold(snapshot.payload)
        if snapshot is None or decoded is None:
            return None
        return FoldedLog(decoded.state, snapshot.end.seq, decoded.logged, hash=snapshot.end.hash, saved=snapshot.end.seq)


class _Chain:
    """Verifies entries against the hashes that chain them and against the sealed end."""

    def __init__(self, stream: StreamId, last: StreamEnd, end: StreamEnd) -> None:
        self.last = last
        self._name = stream.encode()
        self._end = end
        self._is_broken = False
        self._is_complete = last == end

    @property
    def holds(self) -> bool:
        """Tell whether all entries so far are right, and the sealed end is among them."""
        return self._is_complete and not self._is_broken

    def take(self, page: Sequence[Entry]) -> None:
        """Verify the entries that follow."""
        seq, digest = self.last
        try:
            for entry in page:
                seq += 1
                digest = entry_hash(digest, self._name, seq, entry.kind, entry.version, entry.payload)
                if digest != entry.hash or seq != entry.seq:
                    self._is_broken = True
                    return
        except (TypeError, AttributeError):
            # Values of other types than ours: someone else put them in.
            self._is_broken = True
            return
        if self.last.seq < self._end.seq <= seq:
            self._is_complete = page[self._end.seq - self.last.seq - 1].hash == self._end.hash
        self.last = StreamEnd(seq, digest)


class StateCache:
    """Caches the states of recently used sessions, as folded from the log. May be used from any thread."""

    def __init__(self, log: Log, folds: SessionFolds | None = None, most: int = _MOST) -> None:
        self._log = log
        self._folds = folds or SessionFolds(log)
        self._most = most
        self._lock = threading.Lock()
        self._locks: dict[StreamId, threading.Lock] = {}
        self._cache: OrderedDict[StreamId, FoldedLog] = OrderedDict()

    def state(self, stream: StreamId) -> SessionState:
        """Return the state at the end of the log. If another thread is folding it, wait for that."""
        with self._lock:
            lock = self._locks.setdefault(stream, threading.Lock())
        with lock:
            return self._folded(stream)

    def _folded(self, stream: StreamId) -> SessionState:
        cached = self._cache.pop(stream, None)
        # A log that ends before the cached fold is another one: it was deleted, or rescued in part.
        is_ahead = cached is not None and cached.seq <= self._log.head(stream)
        folded = self._folds.fold_on(stream, cached) if cached is not None and is_ahead else self._folds.fold(stream)
        with self._lock:
            if folded.seq:
                self._cache[stream] = folded
            while len(self._cache) > self._most:
                self._cache.popitem(last=False)
            if len(self._locks) > 2 * self._most:
                self._locks = {name: lock for name, lock in self._locks.items() if name in self._cache or lock.locked()}
        return folded.state
