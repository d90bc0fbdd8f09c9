"""A damaged database is set aside as it is, what is whole and proven in it goes on, and the rest is named."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from curtainwall.model import HOUSE, Broken, ExtensionNoted, Post, SessionQuery, StreamId, decode_event
from curtainwall.store import SqliteStore, damage_in, rescue
from tests.support.covers import covers
from tests.support.stores import StillClock, batch, message, opened, run, spoke

FIRST, SECOND = "session:first", "session:second"


def made(home: Path) -> Path:
    """Write two sessions, the second long enough to fill pages of its own, and return the file."""

    async def scenario() -> None:
        async with SqliteStore.open(home, StillClock()) as store:
            await store.log.append(batch(FIRST, 0, opened("first")))
            await store.log.append(batch(SECOND, 0, opened("second")))
            await store.inbox.post(Post(StreamId(FIRST), "waits", message()))
            await store.inbox.post(Post(StreamId(SECOND), "is lost", message()))
            await store.marks.set("matrix", {"heard !room": "up to here"})
            for number in range(60):
                await store.log.append(batch(SECOND, number + 1, spoke("x" * 2_000)))

    run(scenario())
    database = home / "curtainwall.db"
    db = sqlite3.connect(database)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return database


def decoded(entry: object) -> object:
    return decode_event(entry.kind, entry.payload)  # type: ignore[attr-defined] - an entry


@covers("store.rescue")
def test_whole_streams_go_on_and_the_damaged_file_is_kept_as_it_was(tmp_path: Path) -> None:
    database = made(tmp_path)
    content = bytearray(database.read_bytes())
    middle = content.find(b"x" * 1_000, len(content) // 2) // 4096 * 4096
    content[middle : middle + 4096] = b"\xff" * 4096
    database.write_bytes(content)
    assert damage_in(database)
    told = rescue(tmp_path, StillClock(), decoded)  # type: ignore[arg-type] - as above
    assert told is not None
    assert told.aside.read_bytes() == bytes(content), "never deleted, never changed"
    assert [str(each) for each in told.lost] == [SECOND]

    async def scenario() -> None:
        async with SqliteStore.open(tmp_path, StillClock()) as store:
            assert store.verify() is None
            assert [row.session for row in store.index.sessions(SessionQuery())] == ["first"]
            assert [row.key for row in store.inbox.waiting(StreamId(FIRST))] == ["waits"]
            assert not store.inbox.waiting(StreamId(SECOND))
            assert store.marks.all("matrix") == {"heard !room": "up to here"}
            assert store.log.head(SECOND) == 0  # type: ignore[arg-type] - a stream's name
            incident = decode_event("ExtensionNoted", store.log.read(HOUSE)[-1].payload)
            assert isinstance(incident, ExtensionNoted)
            assert incident.data["lost"] == [SECOND]

    run(scenario())
    assert rescue(tmp_path, StillClock(), decoded) is None, "once is enough"  # type: ignore[arg-type] - as above


@covers("store.rescue")
def test_a_file_of_which_nothing_can_be_read_is_kept_and_a_new_log_begins(tmp_path: Path) -> None:
    database = made(tmp_path)
    database.write_bytes(b"not a database" * 1_000)
    told = rescue(tmp_path, StillClock(), decoded)  # type: ignore[arg-type] - as above
    assert told is not None
    assert (told.streams, told.aside.read_bytes()[:14]) == (0, b"not a database")
    with closing(SqliteStore.open(tmp_path, StillClock())) as store:
        assert store.verify() is None


@covers("store.rescue")
@pytest.mark.parametrize("has_wal", [True, False])
def test_a_rescue_that_was_killed_in_the_middle_loses_nothing_and_is_begun_anew(tmp_path: Path, has_wal: bool) -> None:
    """What was written last is in the WAL alone; without it the damaged file would pass for a whole one that is older."""
    home = tmp_path / "home"

    async def scenario() -> None:
        async with SqliteStore.open(tmp_path / "before", StillClock()) as store:
            await store.log.append(batch(FIRST, 0, opened("first")))
            with closing(sqlite3.connect(tmp_path / "before" / "curtainwall.db")) as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            await store.log.append(batch(FIRST, 1, spoke("the last word")))
            shutil.copytree(tmp_path / "before", home, ignore=shutil.ignore_patterns("watch"))

    run(scenario())
    database, aside = home / "curtainwall.db", home / "curtainwall.db.damaged-1"
    aside.hardlink_to(database)
    if has_wal:
        (home / "curtainwall.db-wal").rename(f"{aside}-wal")
    with pytest.raises(Broken, match="curtainwall audit rescue"):
        SqliteStore.open(home, StillClock())
    rescue(home, StillClock(), decoded)  # type: ignore[arg-type] - as above
    with closing(SqliteStore.open(home, StillClock())) as store:
        assert store.verify() is None
        assert store.log.head(StreamId(FIRST)) == 2


@covers("store.rescue")
def test_what_was_forged_is_not_sealed_anew(tmp_path: Path) -> None:
    database = made(tmp_path)
    db = sqlite3.connect(database)
    db.execute("UPDATE entry SET payload = replace(CAST(payload AS TEXT), 'first', 'forged') WHERE place IN (SELECT min(place) FROM entry)")
    db.commit()
    db.close()
    content = bytearray(database.read_bytes())
    middle = content.find(b"x" * 1_000, len(content) // 2) // 4096 * 4096
    content[middle : middle + 4096] = b"\xff" * 4096
    database.write_bytes(content)
    told = rescue(tmp_path, StillClock(), decoded)  # type: ignore[arg-type] - as above
    assert told is not None
    assert set(map(str, told.lost)) == {FIRST, SECOND}
