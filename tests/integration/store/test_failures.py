"""A full, read-only, locked or damaged disk: a clear refusal, nothing half written, nothing lost, and on again once it is well."""

import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from curtainwall.model import Batch, Broken, Conflict, Consumed, Outcome, SessionQuery, TryLater, Write
from curtainwall.store import SqliteStore, accept_loss
from tests.support.repository import ROOT
from tests.support.stores import NOON, A, B, OnDisk, StillClock, batch, line_from, opened, process, run, spoke

import subprocess  # isort: skip


def filled(disk: OnDisk, entries: int = 200) -> Path:
    """Write a log that has some pages and return its file."""
    store = disk.open()
    run(store.log.append(batch(A, 0, opened("a"), *(spoke("x" * 500) for _ in range(entries - 1)))))
    store.close()
    return disk.home / "curtainwall.db"


def test_a_file_that_may_not_grow_refuses_and_goes_on_when_it_may(disk: OnDisk) -> None:
    with process("limited", str(disk.home), A, "200000") as child:
        assert line_from(child).startswith("TryLater: nothing was written")
        assert line_from(child) == "then TryLater"
        assert line_from(child) == "went on: True, chain: None"


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(bubblewrap: str, tmp_path: Path) -> None:
    assert bubblewrap
    done = confined(["--size", "2000000", "--tmpfs", "/mnt"], "full", "/mnt/home", "/mnt/ballast")
    refused, blob, on = done.stdout.splitlines()
    assert refused.startswith("TryLater: nothing was written: the disk is full: free some space")
    assert blob == "blob TryLater"
    assert on == "went on: True, chain: None"


def test_a_read_only_disk_refuses(bubblewrap: str, disk: OnDisk) -> None:
    assert bubblewrap
    filled(disk)
    done = confined(["--ro-bind", str(disk.home), str(disk.home)], "readonly", str(disk.home))
    assert done.stdout.startswith("TryLater: nothing was written")
    assert "writable" in done.stdout
    assert disk.open().log.head(A) == 200


def test_an_empty_read_only_disk_refuses(bubblewrap: str, tmp_path: Path) -> None:
    assert bubblewrap
    done = confined(["--ro-bind", str(tmp_path), str(tmp_path)], "readonly", str(tmp_path / "home"))
    assert done.stdout.startswith("TryLater: nothing was written")


def confined(mounts: list[str], role: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a role of `tests.support.store_process` with mounts of its own."""
    home, *rest = arguments
    outside = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/var/tmp", *mounts, "--chdir", str(ROOT)]
    command = [*outside, sys.executable, "-B", "-m", "tests.support.store_process", role, home, A, *rest]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


def test_a_database_that_another_process_locks_refuses_and_then_goes_on(disk: OnDisk) -> None:
    path = filled(disk)
    store = SqliteStore.open(disk.home, StillClock(), busy_millis=100)
    disk.opened.append(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for _ in range(2):
        with pytest.raises(TryLater, match="locked by another process"):
            run(store.log.append(batch(A, 200, spoke())))
    assert len(store.log.read(A)) == 200, "reading goes on"
    other.execute("ROLLBACK")
    other.close()
    assert run(store.log.append(batch(A, 200, spoke()))) == {A: 201}
    assert store.verify() is None


def garbage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 8192] = b"\xde\xad\xbe\xef" * 2048
    path.write_bytes(content)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 + 100)


def nonsense(path: Path) -> None:
    path.write_bytes(b"this is not a database, it is a letter " * 1000)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def test_a_store_with_old_keys_to_forget_opens_also_while_another_process_writes(disk: OnDisk) -> None:
    store = disk.open()
    run(store.log.append(Batch((Write(A, 0, (opened("a"),)),), (Consumed(A, "k1", Outcome(seq=1)),))))
    store.close()
    with closing(sqlite3.connect(disk.home / "curtainwall.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        later = StillClock(NOON + 30 * 24 * 3600 * 1000)
        with closing(SqliteStore.open(disk.home, later, busy_millis=50)) as opened_meanwhile:
            assert opened_meanwhile.log.head(A) == 1
            assert opened_meanwhile.inbox.outcome(A, "k1") is not None
        other.execute("ROLLBACK")
    with closing(SqliteStore.open(disk.home, later)) as tidied:
        assert tidied.inbox.outcome(A, "k1") is None


@pytest.mark.parametrize("damage", [garbage, cut, nonsense])
def test_a_damaged_database_is_broken_and_says_what_to_do(disk: OnDisk, damage: Callable[[Path], None]) -> None:
    damage(filled(disk))
    with pytest.raises(Broken, match="damaged: put back a copy"):
        use_everything(disk)


def use_everything(disk: OnDisk) -> None:
    """Open, read and verify; any of these may be the first to notice."""
    store = disk.open()
    store.log.read(A)
    store.index.sessions(SessionQuery())
    store.verify()


def test_damage_while_the_store_is_open_refuses_writes_until_a_whole_copy_is_back(disk: OnDisk) -> None:
    path = filled(disk)
    shutil.copy(path, whole := disk.home / "backup")
    store = disk.open()
    assert store.log.head(A) == 200
    path.unlink()
    nonsense(path)
    for _ in range(2):
        with pytest.raises(Broken):
            run(store.log.append(batch(A, 200, spoke())))
    assert path.read_bytes().startswith(b"this is not a database"), "nothing was written to it"
    path.unlink()
    for stale in disk.home.glob("curtainwall.db-*"):
        stale.unlink()
    shutil.copy(whole, path)
    assert run(store.log.append(batch(A, 200, spoke()))) == {A: 201}
    store.close()
    again = disk.open()
    assert (again.log.head(A), again.verify()) == (201, None)


def test_a_database_that_was_moved_away_is_not_silently_made_anew(disk: OnDisk) -> None:
    path = filled(disk)
    store = disk.open()
    run(store.log.append(batch(A, 200, spoke())))
    path.rename(path.with_suffix(".moved"))
    with pytest.raises((TryLater, Broken)):
        run(store.log.append(batch(A, 201, spoke())))
    assert not path.exists()


def test_a_newer_format_is_left_alone(disk: OnDisk) -> None:
    db = sqlite3.connect(filled(disk))
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(Broken, match=r"format 99 .*: use the newer version, or put back a copy from before it"):
        disk.open()


def test_the_database_of_another_program_is_left_alone(disk: OnDisk) -> None:
    disk.open().close()
    path = disk.home / "curtainwall.db"
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(Broken, match="another program"):
        disk.open()


def test_an_emptied_database_is_not_begun_anew(disk: OnDisk) -> None:
    path = filled(disk)
    disk.open().close()
    emptied(path)
    with pytest.raises(Broken, match="the log is gone"):
        disk.open()
    assert path.stat().st_size == 0


def test_nothing_more_is_written_once_the_wal_was_taken_away_beneath_a_process_and_nothing_is_lost(disk: OnDisk) -> None:
    store = disk.open()
    run(store.log.append(batch(A, 0, spoke(), spoke())))
    for suffix in ("-wal", "-shm"):
        (disk.home / f"curtainwall.db{suffix}").unlink()
    for _ in range(2):
        with pytest.raises((Broken, TryLater)):
            run(store.log.append(batch(A, 2, spoke())))
    store.close()
    assert disk.open().log.head(A) == 2


def test_a_log_that_was_set_back_beneath_an_open_store_is_not_written_to(disk: OnDisk) -> None:
    store = disk.open()
    run(store.log.append(batch(A, 0, spoke())))
    store.close()
    kept = (disk.home / "curtainwall.db").read_bytes()
    store = disk.open()
    run(store.log.append(batch(A, 1, spoke())))
    store.close()
    store = disk.open()
    (disk.home / "curtainwall.db").write_bytes(kept)
    for path in disk.home.glob("curtainwall.db-*"):
        path.unlink()
    with pytest.raises(Broken, match="1 entries that were written are not in"):
        run(store.log.append(batch(B, 0, spoke())))
    store.close()


def test_a_loss_is_noticed_and_accepted_once(disk: OnDisk) -> None:
    store = disk.open()
    run(store.log.append(batch(A, 0, spoke())))
    store.close()
    kept = (disk.home / "curtainwall.db").read_bytes()
    store = disk.open()
    run(store.log.append(batch(A, 1, spoke(), spoke())))
    store.close()
    (disk.home / "curtainwall.db").write_bytes(kept)
    with pytest.raises(Broken, match="2 entries that were written are not in"):
        disk.open()
    loss = accept_loss(disk.home, StillClock())
    assert loss is not None
    assert loss.entries == 2
    assert accept_loss(disk.home, StillClock()) is None
    store = disk.open()
    assert (store.log.head(A), store.verify()) == (1, None)
    run(store.log.append(batch(A, 1, spoke())))
    store.close()
    disk.open().close()


def test_a_note_that_is_not_ours_or_torn_is_as_good_as_none(disk: OnDisk) -> None:
    store = disk.open()
    run(store.log.append(batch(A, 0, spoke())))
    store.close()
    note = disk.home / "keys" / "last-commit"
    for content in (b"", b"9999 boot 00", note.read_bytes()[:40], note.read_bytes().replace(b"1 ", b"9 ", 1), b"\xff" * 500):
        note.write_bytes(content)
        disk.open().close()


def test_a_batch_that_no_database_can_hold_is_refused_and_its_neighbours_are_not(disk: OnDisk) -> None:
    import asyncio

    store = disk.open()

    async def together() -> list[object]:
        bad = store.log.append(batch(A, 0, spoke(at=1 << 70)))
        return await asyncio.gather(store.log.append(batch(B, 0, spoke())), bad, return_exceptions=True)

    good, bad = run(together())
    assert good == {B: 1}
    assert isinstance(bad, Broken)
    assert store.log.head(A) == 0
    with pytest.raises(Conflict):
        run(store.log.append(batch(B, 0, spoke())))
    assert store.verify() is None


def test_a_closed_store_says_so(disk: OnDisk) -> None:
    store = disk.open()
    store.close()
    store.close()
    with pytest.raises(TryLater, match="closed"):
        run(store.log.append(batch(A, 0, spoke())))
    with pytest.raises(TryLater, match="closed"):
        store.log.read(A)


def test_altered_missing_and_unreadable_blobs_are_told_apart(disk: OnDisk) -> None:
    store = disk.open()
    kept = run(store.blobs.put(b"content"))
    path = disk.home / "blobs" / kept.digest[:2] / kept.digest
    path.write_bytes(b"other content")
    with pytest.raises(Broken, match="altered"):
        store.blobs.get(kept.digest)
    run(store.blobs.put(b"content"))
    assert store.blobs.get(kept.digest) == b"content", "putting it again mends it"
    assert [found.name for found in path.parent.iterdir()] == [kept.digest]
