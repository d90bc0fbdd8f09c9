"""Keys of old commands go while a process runs, a few at a time, and never the ones that still matter."""

import sqlite3
from contextlib import closing
from pathlib import Path

from curtainwall.model import Batch, Consumed, Outcome, Post
from curtainwall.store import SqliteStore
from curtainwall.store.database import connect
from curtainwall.store.disk.pruner import InboxPruner
from tests.support.covers import covers
from tests.support.stores import NOON, A, StillClock, batch, message, opened, run
from tests.support.waiting import eventually

DAY = 24 * 3600 * 1000
MANY = 600


def rows(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "curtainwall.db")) as db:
        return [key for (key,) in db.execute("SELECT key FROM inbox ORDER BY row")]


async def keep_old_keys(store: SqliteStore) -> None:
    """Fill the inbox with a command that waits, many that were decided, and one more that waits."""
    await store.log.append(batch(A, 0, opened("a")))
    await store.inbox.post(Post(A, "first", message()))
    await store.log.append(Batch((), consumed=tuple(Consumed(A, f"old {number}", Outcome(seq=1)) for number in range(MANY))))
    await store.inbox.post(Post(A, "last", message()))


@covers("store.old-keys-go-while-it-runs")
def test_old_keys_go_while_a_process_runs(tmp_path: Path) -> None:
    clock = StillClock()

    async def story() -> None:
        async with SqliteStore.open(tmp_path, clock) as store, store.log.watch():
            await keep_old_keys(store)
            clock.at = NOON + 6 * DAY
            await store.log.append(Batch((), consumed=(Consumed(A, "new", Outcome(seq=1)),)))
            assert len(rows(tmp_path)) == MANY + 3
            clock.at = NOON + 8 * DAY
            await eventually(lambda: len(rows(tmp_path)) == 3)
            assert rows(tmp_path) == ["first", "last", "new"]
            assert store.verify() is None

    run(story())


def test_old_keys_go_on_going_where_the_clock_was_set_back(tmp_path: Path) -> None:
    async def fill() -> None:
        async with SqliteStore.open(tmp_path, StillClock()) as store:
            await keep_old_keys(store)

    pruning, far = InboxPruner(), NOON + 30 * DAY
    SqliteStore.open(tmp_path, StillClock()).close()
    with closing(connect(tmp_path / "curtainwall.db", 0)) as db:
        pruning.go_on(db, far)
        run(fill())
        for _ in range(4):
            pruning.go_on(db, far - 20 * DAY)
    assert rows(tmp_path) == ["first", "last"]


def test_old_keys_wait_for_whoever_writes(tmp_path: Path) -> None:
    async def fill() -> None:
        async with SqliteStore.open(tmp_path, StillClock()) as store:
            await keep_old_keys(store)

    run(fill())
    path, pruning, later = tmp_path / "curtainwall.db", InboxPruner(), NOON + 8 * DAY
    with closing(connect(path, 0)) as ours, closing(connect(path, 0)) as other:
        other.execute("BEGIN IMMEDIATE")
        pruning.go_on(ours, later)
        other.execute("ROLLBACK")
        assert len(rows(tmp_path)) == MANY + 2
        left: list[int] = []
        while not left or left[-1] > 2:
            pruning.go_on(ours, later)
            left.append(len(rows(tmp_path)))
        assert len(left) > 1, "a few at a time"
