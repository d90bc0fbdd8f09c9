"""Homes of older formats are lifted when they are opened."""

import sqlite3
from contextlib import closing
from pathlib import Path

from curtainwall.model import ApprovalQuery, Route, RouteAdded, RouteRemoved, ShownAt
from curtainwall.store import SqliteStore
from curtainwall.store.database import FORMAT
from tests.support.stores import ANN, NOON, A, StillClock, asked, batch, opened, requested, run


def test_a_home_of_the_third_format_is_searched_as_quickly_as_a_new_one(tmp_path: Path) -> None:
    async def use() -> None:
        async with SqliteStore.open(tmp_path, StillClock()):
            pass

    def indices() -> list[str]:
        with closing(sqlite3.connect(tmp_path / "curtainwall.db")) as db:
            return [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'index' ORDER BY name")]

    run(use())
    now = indices()
    with closing(sqlite3.connect(tmp_path / "curtainwall.db")) as db:
        for index in ("approval_settled", "label_named", "session_workspace"):
            db.execute(f"DROP INDEX {index}")
        db.execute("ALTER TABLE seal DROP COLUMN written")
        db.execute("PRAGMA user_version = 3")
        db.commit()
    run(use())
    assert indices() == now


def test_a_home_of_the_second_format_knows_where_its_asks_are_shown(tmp_path: Path) -> None:
    rooms = [Route(channel="matrix", reference=name) for name in ("!a", "!b")]
    added = (RouteAdded(at=NOON, route=room, by=ANN) for room in rooms)
    left = RouteRemoved(at=NOON, route=rooms[1], by=ANN)

    async def before() -> None:
        async with SqliteStore.open(tmp_path, StillClock()) as store:
            await store.log.append(batch(A, 0, opened("a"), *added, left, requested("c1"), asked("ap1", "c1")))

    async def after() -> None:
        async with SqliteStore.open(tmp_path, StillClock()) as store:
            found = [len(store.index.approvals(ApprovalQuery(shown_at=ShownAt("matrix", room.reference)))) for room in rooms]
            assert found == [1, 0]
            await store.marks.set("matrix", {"cursor": "1"})
            assert store.verify() is None

    run(before())
    with closing(sqlite3.connect(tmp_path / "curtainwall.db")) as db:
        for table in ("shown", "mark"):
            db.execute(f"DROP TABLE {table}")
        for index in ("approval_settled", "label_named", "session_workspace"):
            db.execute(f"DROP INDEX {index}")
        db.execute("ALTER TABLE seal DROP COLUMN written")
        db.execute("PRAGMA user_version = 2")
        db.commit()
    run(after())
    with closing(sqlite3.connect(tmp_path / "curtainwall.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (FORMAT,)
