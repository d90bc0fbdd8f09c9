"""Whoever changes the database behind our back is found, and the first bad entry is named."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from curtainwall.model import HOUSE, Batch, Broken, Digest, SessionDeleted, SessionId, StreamId, Write
from curtainwall.store import ChainFault, Head, SqliteStore, parse_head
from tests.support.stores import ANN, NOON, A, B, OnDisk, batch, opened, run, spoke

PLACE = "((SELECT id FROM head WHERE stream = 'session:a') << 32) + "


@pytest.fixture
def written(disk: OnDisk) -> OnDisk:
    """Return a home with two sessions of ten entries each."""
    store = disk.open()
    for stream, name in ((A, "a"), (B, "b")):
        run(store.log.append(batch(stream, 0, opened(name), *(spoke(f"{name} says {n}") for n in range(2, 10)))))
        run(store.log.append(batch(stream, 9, spoke(f"{name} says 10"))))
    store.close()
    return disk


def tamper(disk: OnDisk, *statements: str) -> None:
    """Change the database the way someone else with access to the file would."""
    db = sqlite3.connect(disk.home / "curtainwall.db")
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


def fault(disk: OnDisk, stream: StreamId | None = None) -> tuple[str | None, int | None, str] | None:
    """Return the first thing that is wrong."""
    found = disk.open().verify(stream)
    assert found is None or str(found)
    return (found.stream, found.seq, found.what) if found else None


def test_an_untouched_log_passes(written: OnDisk) -> None:
    assert fault(written) is None
    assert fault(written, A) is None


def test_an_empty_log_passes(disk: OnDisk) -> None:
    assert fault(disk) is None


SWAP = (
    f"UPDATE entry SET place = -1 WHERE place = {PLACE} {{0}}",
    f"UPDATE entry SET place = {PLACE} {{0}} WHERE place = {PLACE} {{1}}",
    f"UPDATE entry SET place = {PLACE} {{1}} WHERE place = -1",
)


@pytest.mark.parametrize(
    ("statements", "seq", "what"),
    [
        ([f"UPDATE entry SET payload = CAST(replace(payload, 'says 4', 'said 4') AS BLOB) WHERE place = {PLACE} 4"], 4, "edited"),
        ([f"UPDATE entry SET payload = CAST(payload AS TEXT) WHERE place = {PLACE} 4"], 4, "edited"),
        ([f"UPDATE entry SET payload = 7, hash = 'x' WHERE place = {PLACE} 4"], 4, "edited"),
        ([f"UPDATE entry SET kind = 'TextStreamed' WHERE place = {PLACE} 4"], 4, "edited"),
        ([f"UPDATE entry SET version = 2 WHERE place = {PLACE} 4"], 4, "edited"),
        ([f"UPDATE entry SET hash = zeroblob(32) WHERE place = {PLACE} 4"], 4, "edited"),
        ([f"DELETE FROM entry WHERE place = {PLACE} 4"], 4, "removed"),
        ([f"DELETE FROM entry WHERE place = {PLACE} 1"], 1, "removed"),
        ([statement.format(4, 5) for statement in SWAP], 4, "reordered"),
        ([statement.format(2, 9) for statement in SWAP], 2, "reordered"),
        (
            [
                "CREATE TEMP TABLE kept AS SELECT place, payload FROM entry",
                f"UPDATE entry SET payload = (SELECT payload FROM kept WHERE place = {PLACE} 7) WHERE place = {PLACE} 3",
                f"UPDATE entry SET payload = (SELECT payload FROM kept WHERE place = {PLACE} 3) WHERE place = {PLACE} 7",
            ],
            3,
            "reordered",
        ),
        ([f"DELETE FROM entry WHERE place = {PLACE} 10"], 10, "cut off"),
        ([f"DELETE FROM entry WHERE place > {PLACE} 6 AND place <= {PLACE} 10"], 7, "cut off"),
        ([f"INSERT INTO entry SELECT {PLACE} 11, kind, version, payload, hash FROM entry WHERE place = {PLACE} 10"], 11, "head forged"),
        (
            [
                f"DELETE FROM entry WHERE place = {PLACE} 10",
                f"UPDATE head SET seq = 9, hash = (SELECT hash FROM entry WHERE place = {PLACE} 9) WHERE stream = 'session:a'",
            ],
            9,
            "head forged",
        ),
        (["UPDATE head SET mac = 'text' WHERE stream = 'session:a'"], 10, "head forged"),
        (["UPDATE head SET mac = zeroblob(32) WHERE stream = 'session:a'"], 10, "head forged"),
        (["UPDATE head SET stream = 'session:z' WHERE stream = 'session:a'"], None, ""),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_first_bad_entry_is_named(written: OnDisk, statements: list[str], seq: int | None, what: str) -> None:
    tamper(written, *statements)
    if what:
        assert fault(written) == ("session:a", seq, what)
        assert fault(written, B) is None
    else:
        assert fault(written) is not None


def test_a_stream_that_is_gone_with_its_head_and_its_rows_is_missed(written: OnDisk) -> None:
    entries = f"DELETE FROM entry WHERE place > {PLACE} 0 AND place <= {PLACE} 10"
    tamper(written, entries, "DELETE FROM head WHERE stream = 'session:a'")
    assert fault(written) == ("session:a", None, "stream missing"), "lists still name it"
    tamper(written, "DELETE FROM session WHERE session = 'a'")
    assert fault(written) == (None, None, "stream missing")


def test_a_head_without_its_stream_row_is_missed(written: OnDisk) -> None:
    tamper(written, "DELETE FROM head WHERE stream = 'session:a'", "DELETE FROM session WHERE session = 'a'")
    assert fault(written) == (None, None, "stream missing")


def test_one_stream_set_back_with_its_own_older_head_is_found(written: OnDisk, tmp_path: Path) -> None:
    older = tmp_path / "older.db"
    shutil.copy(written.home / "curtainwall.db", older)
    store = written.open()
    run(store.log.append(batch(A, 10, spoke("what someone wants undone"))))
    store.close()
    db = sqlite3.connect(written.home / "curtainwall.db")
    db.execute("ATTACH ? AS older", (str(older),))
    with db:
        db.execute(f"DELETE FROM entry WHERE place = {PLACE} 11")
        db.execute(
            "UPDATE head SET (seq, hash, mac) = (SELECT seq, hash, mac FROM older.head o WHERE o.stream = head.stream)"
            " WHERE stream = 'session:a'"
        )
    db.close()
    assert fault(written) == (None, None, "older copy")
    store = written.open()
    run(store.log.append(batch(A, 10, spoke("something else instead"))))
    assert fault(written) == (None, None, "older copy"), "writing on does not cover it up"


@pytest.mark.parametrize("statement", ["UPDATE seal SET entries = entries - 1", "DELETE FROM seal", "UPDATE seal SET mac = zeroblob(32)"])
def test_a_changed_seal_is_found_and_nothing_is_written_on_top(written: OnDisk, statement: str) -> None:
    tamper(written, statement)
    assert fault(written) == (None, None, "head forged")
    with pytest.raises(Broken, match="seal"):
        run(written.open().log.append(batch(A, 10, spoke())))
    with pytest.raises(Broken, match="seal"):
        run(written.open().log.erase(A, Batch(writes=(Write(A, 10, ()),))))
    assert written.open().log.head(A) == len(written.open().log.read(A)) == 10


def test_a_forged_head_is_never_extended(written: OnDisk) -> None:
    tamper(written, "UPDATE head SET seq = 4 WHERE stream = 'session:a'")
    store = written.open()
    with pytest.raises(Broken, match="forged"):
        run(store.log.append(batch(A, 4, spoke())))
    assert run(store.log.append(batch(B, 10, spoke()))) == {B: 11}, "other streams go on"


def kept_lines(store: SqliteStore) -> list[str]:
    """Return what `audit head` prints."""
    return [str(head) for head in store.heads()]


def against(disk: OnDisk, lines: list[str]) -> ChainFault | None:
    """Verify against lines that were kept elsewhere."""
    return disk.open().verify(against=[parse_head(line) for line in lines])


def test_heads_kept_elsewhere_show_that_an_older_copy_of_everything_was_put_back(written: OnDisk, tmp_path: Path) -> None:
    shutil.copytree(written.home, tmp_path / "backup")
    store = written.open()
    early = kept_lines(store)
    run(store.log.append(batch(A, 10, spoke())))
    late = kept_lines(store)
    assert against(written, early) is None
    assert against(written, late) is None
    store.close()
    restored = OnDisk(tmp_path / "backup")
    assert restored.open().verify() is None, "on its own it looks whole"
    found = against(restored, late)
    for opened_store in restored.opened:
        opened_store.close()
    assert found is not None
    assert (found.stream, found.seq, found.what) == (A, 11, "older copy")


def test_another_entry_at_a_kept_place_is_found(written: OnDisk) -> None:
    found = written.open().verify(against=[Head(A, 5, bytes(32))])
    assert found is not None
    assert (found.stream, found.seq, found.what) == (A, 5, "older copy")


def test_a_session_deleted_on_purpose_is_not_missed_by_kept_heads(written: OnDisk) -> None:
    store = written.open()
    lines = kept_lines(store)
    record = SessionDeleted(at=NOON, session=SessionId("a"), name="a", entries=10, head=Digest(""), by=ANN)
    run(store.log.erase(A, Batch(writes=(Write(A, 10, ()), Write(HOUSE, 0, (record,))))))
    assert store.verify() is None
    assert against(written, lines) is None
    run(store.log.erase(B, Batch(writes=())))
    found = against(written, lines)
    assert found is not None
    assert (found.stream, found.what) == (B, "stream missing")


def test_a_stream_that_is_not_there_is_missing(written: OnDisk) -> None:
    assert fault(written, StreamId("session:nobody")) == ("session:nobody", None, "stream missing")


@pytest.mark.parametrize("name", ["session:a", 'project:/a b/c\n"d"', "project:/ü"])
def test_a_head_is_printed_on_one_line_and_read_back(name: str) -> None:
    head = Head(StreamId(name), 7, bytes(range(32)))
    assert "\n" not in str(head)
    assert parse_head(str(head)) == head


@pytest.mark.parametrize("line", ["", "x", '00 1 "a"', "0" * 64 + " 1 17", "0" * 64 + ' one "a"'])
def test_anything_else_is_no_head(line: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - several things are wrong with these
        parse_head(line)


def test_heads_of_a_log_with_another_key_do_not_pass(written: OnDisk) -> None:
    key = written.home / "keys" / "audit.key"
    key.write_bytes(bytes(byte ^ 1 for byte in key.read_bytes()))
    assert fault(written) == ("session:a", 10, "head forged")
