"""A session that is looked at again is folded only by what is new."""

import threading
from collections.abc import Sequence

from curtainwall.model import Entry, SessionReady, StreamId
from curtainwall.runtime.sessions.folds import StateCache
from curtainwall.session import fold, lift
from curtainwall.store import MemoryStore
from tests.support.covers import covers
from tests.support.stores import NOON, A, B, StillClock, batch, opened, run, spoke, turn_ended, turn_started


class Counted:
    """A log that counts what is read from it."""

    def __init__(self, store: MemoryStore) -> None:
        self.append, self.watch, self.head, self.erase = store.log.append, store.log.watch, store.log.head, store.log.erase
        self._read = store.log.read
        self.entries = 0

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        found = self._read(stream, after, limit)
        self.entries += len(found)
        return found


def log_of(many: int) -> Counted:
    log = Counted(MemoryStore(StillClock()))
    run(log.append(batch(A, 0, opened("a"), SessionReady(at=NOON), turn_started(), *(spoke(str(n)) for n in range(many)))))
    return log


@covers("web.a-long-session-is-read-in-windows")
def test_a_second_look_reads_only_what_is_new() -> None:
    log = log_of(2_500)
    folds = StateCache(log)
    assert folds.state(A) == fold(lift(entry) for entry in log.read(A))
    log.entries = 0
    assert folds.state(A).turn is not None
    assert log.entries == 0
    run(log.append(batch(A, 2_503, turn_ended())))
    assert folds.state(A).turn is None
    assert log.entries == 1


def test_a_log_that_was_deleted_is_read_anew() -> None:
    log = log_of(3)
    folds = StateCache(log)
    assert folds.state(A).opened is not None
    run(log.erase(A, batch(B, 0, spoke())))
    assert folds.state(A).opened is None


def test_those_who_look_at_once_read_a_log_once() -> None:
    log = log_of(3_000)
    folds = StateCache(log)
    threads = [threading.Thread(target=folds.state, args=(A,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.entries == 3_003


def test_only_so_many_are_kept() -> None:
    log = log_of(10)
    run(log.append(batch(B, 0, opened("b"))))
    folds = StateCache(log, most=1)
    folds.state(A)
    folds.state(B)
    log.entries = 0
    folds.state(A)
    assert log.entries == 13
