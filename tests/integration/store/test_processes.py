"""Several real processes on one home: leases end with their owner, watchers hear of others, nothing acknowledged is lost."""

import asyncio
import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from curtainwall.model import (
    Batch,
    BlobRef,
    Broken,
    Consumed,
    HistoryInherited,
    Outcome,
    Post,
    SessionId,
    StreamId,
    TryLater,
    Write,
    inbox_of,
)
from curtainwall.store import SqliteStore
from tests.support.stores import (
    NOON,
    A,
    B,
    OnDisk,
    StillClock,
    batch,
    everything_audited,
    line_from,
    message,
    next_change,
    next_named,
    process,
    run,
    spoke,
    tell,
    until_named,
)
from tests.support.waiting import until


def test_a_lease_is_held_against_other_processes_and_given_back(disk: OnDisk) -> None:
    store = disk.open()
    with process("hold", str(disk.home), A) as owner:
        assert line_from(owner) == "held"
        assert store.leases.take(A) is None
        told = store.leases.owner(A)
        assert told is not None
        assert told.pid == owner.pid
        tell(owner)
        assert line_from(owner) == "released"
        assert store.leases.owner(A) is None
        assert store.leases.take(A) is not None


def test_the_lease_of_a_killed_owner_is_free_at_once(disk: OnDisk) -> None:
    store = disk.open()
    with process("hold", str(disk.home), A) as owner:
        assert line_from(owner) == "held"
        owner.kill()
        owner.wait()
        assert store.leases.owner(A) is None
        assert store.leases.take(A) is not None
    with process("hold", str(disk.home), A) as other:
        assert line_from(other) == "refused"


def test_a_lease_does_not_live_on_in_children(disk: OnDisk) -> None:
    store = disk.open()
    lease = store.leases.take(A)
    assert lease is not None
    with process("hold", str(disk.home), B) as child:
        assert line_from(child) == "held"
        lease.release()
        assert disk.open().leases.take(A) is not None


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(disk: OnDisk) -> None:
    for round_ in range(3):
        with process("endless", str(disk.home), A) as writer:
            acknowledged = 0
            for _ in range(20 + 7 * round_):
                acknowledged = int(line_from(writer))
            writer.kill()
            writer.wait()
        store = disk.open()
        assert store.log.head(A) >= acknowledged
        assert store.log.head(A) % 2 == 0, "a batch is there whole or not at all"
        assert store.verify() is None
        store.close()


def test_two_processes_write_one_stream_and_each_entry_is_there_once(disk: OnDisk) -> None:
    disk.open().close()
    with process("race", str(disk.home), A, "150", "left") as left, process("race", str(disk.home), A, "150", "right") as right:
        for child in (left, right):
            assert line_from(child) == "ready"
        for child in (left, right):
            tell(child)
        assert (line_from(left), line_from(right)) == ("150", "150")
    store = disk.open()
    assert store.log.head(A) == 300
    assert len({entry.payload for entry in store.log.read(A)}) == 300
    assert [store.inbox.outcome(A, f"command {n}") for n in range(300)] == [Outcome(n + 1) for n in range(300)]
    assert store.verify() is None


def test_many_processes_can_open_a_new_home_at_once(disk: OnDisk) -> None:
    with contextlib.ExitStack() as stack:
        streams = [StreamId(f"session:{n}") for n in range(6)]
        children = [stack.enter_context(process("append", str(disk.home), stream)) for stream in streams]
        for child in children:
            assert line_from(child) == "ready"
            tell(child, "hello")
        assert [line_from(child) for child in children] == ["done"] * 6
    store = disk.open()
    assert [store.log.head(stream) for stream in streams] == [1] * 6
    assert store.verify() is None


def test_a_watcher_hears_of_entries_and_posts_of_another_process(disk: OnDisk) -> None:
    store = disk.open()

    async def watch() -> None:
        with process("append", str(disk.home), B) as other:
            assert await asyncio.to_thread(line_from, other) == "ready"
            async with store.log.watch() as changes:
                for text, told in (("hello", B), ("post", inbox_of(B))):
                    tell(other, text)
                    assert await next_named(changes) == {told}
                    assert await asyncio.to_thread(line_from, other) == "done"

    run(watch())
    assert (store.log.head(B), len(store.inbox.waiting(B))) == (1, 1)


def test_a_home_with_a_very_long_path_can_be_watched(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30) / "home"

    async def watch() -> None:
        async with (
            SqliteStore.open(home, StillClock()) as store,
            SqliteStore.open(home, StillClock()) as other,
            store.log.watch() as changes,
        ):
            assert len(os.fsencode(home)) > 108
            await other.log.append(batch(A, 0, spoke()))
            assert await next_named(changes) == {A}

    run(watch())


def test_what_no_datagram_told_is_found_by_looking(disk: OnDisk) -> None:
    store = disk.open()

    async def watch() -> frozenset[StreamId]:
        async with store.log.watch() as changes:
            await store.log.append(batch(A, 0, spoke()))
            assert await next_change(changes) == {A}
            await asyncio.to_thread(write_silently, disk.home)
            return await next_change(changes)

    assert run(watch()) == frozenset()


def test_what_no_datagram_told_before_anybody_looked_is_told_at_the_first_look(disk: OnDisk) -> None:
    store = disk.open()

    async def watch() -> frozenset[StreamId]:
        await store.log.append(batch(A, 0, spoke()))
        # As where the one who looks comes to it only after that.
        await asyncio.to_thread(write_silently, disk.home)
        async with store.log.watch() as changes:
            return await next_change(changes)

    assert run(watch()) == frozenset()


def write_silently(home: Path) -> None:
    db = sqlite3.connect(home / "curtainwall.db")
    with db:
        db.execute("INSERT INTO inbox (stream, key, kind, payload) VALUES ('session:z', 'k', 'SendMessage', x'')")
    db.close()


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe", b"{}", b"[1, null, {}]", b"[" * 900, b'"text"', b"[]"])
def test_whatever_a_stranger_sends_only_means_look_again(disk: OnDisk, garbage: bytes) -> None:
    store = disk.open()

    async def watch() -> frozenset[StreamId]:
        async with store.log.watch() as changes:
            (ear,) = (disk.home / "run" / "watch").iterdir()
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
                stranger.sendto(garbage, str(ear))
            return await next_change(changes)

    assert run(watch()) == frozenset()


def test_the_socket_of_a_dead_watcher_is_cleared_away(disk: OnDisk) -> None:
    store = disk.open()
    dead = disk.home / "run" / "watch" / "dead"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(dead))
    run(store.log.append(batch(A, 0, spoke())))
    until(lambda: not dead.exists())


def test_a_watcher_who_never_reads_delays_nobody_and_then_looks_at_everything(disk: OnDisk) -> None:
    store, other = disk.open(), disk.open()

    async def watch() -> None:
        async with store.log.watch() as changes:
            for n in range(60):
                await other.log.append(batch(StreamId(f"session:{n}"), 0, spoke()))
            await until_named(changes, [StreamId(f"session:{n}") for n in range(60)])

    run(watch())


def test_sockets_of_watchers_are_gone_when_they_leave(disk: OnDisk) -> None:
    store = disk.open()

    async def watch() -> int:
        async with store.log.watch(), store.log.watch():
            return len(list((disk.home / "run" / "watch").iterdir()))

    assert run(watch()) == 2
    assert list((disk.home / "run" / "watch").iterdir()) == []


def test_the_audit_is_caught_up_after_its_writer_was_killed(disk: OnDisk) -> None:
    with process("audited", str(disk.home), A) as writer:
        assert line_from(writer) == "committed"
        writer.kill()
    audit = disk.home / "sessions" / "a" / "audit.jsonl"
    if audit.exists():
        audit.write_bytes(audit.read_bytes()[:1000])
    store = disk.open()
    assert store.verify_audit(SessionId("a")) is None, "behind is not wrong"
    run(store.log.append(batch(B, 0, spoke())))
    until(lambda: audit.exists() and len(audit.read_text().splitlines()) == 12)
    store.close()
    assert disk.open().verify_audit(SessionId("a")) is None


def test_batches_that_wait_together_are_one_commit(disk: OnDisk) -> None:
    store = disk.open()

    async def many() -> None:
        await store.log.append(batch(A, 0, spoke()))
        before = commits(disk.home)
        await asyncio.gather(*(store.log.append(batch(StreamId(f"session:{n}"), 0, spoke())) for n in range(100)))
        # The writer begins while others still come; how many it finds each time depends on who is let run.
        assert commits(disk.home) - before <= 20

    run(many())


def commits(home: Path) -> int:
    """Return how many frames of the WAL end a transaction."""
    wal = (home / "curtainwall.db-wal").read_bytes()
    page = int.from_bytes(wal[8:12], "big")
    return sum(wal[start + 4 : start + 8] != b"\0\0\0\0" for start in range(32, len(wal), page + 24))


def test_old_decided_keys_are_forgotten_and_waiting_ones_are_not(disk: OnDisk) -> None:
    store = disk.open()
    run(store.inbox.post(Post(A, "waits", message())))
    decided = Batch(writes=(Write(A, 0, (spoke(),)),), consumed=(consumed("old"),))
    run(store.log.append(decided))
    store.close()
    disk.clock.at = NOON + 6 * 24 * 3600 * 1000
    assert disk.open().inbox.outcome(A, "old") == Outcome(1)
    disk.clock.at = NOON + 8 * 24 * 3600 * 1000
    later = disk.open()
    assert later.inbox.outcome(A, "old") is None
    assert [waiting.key for waiting in later.inbox.waiting(A)] == ["waits"]


def consumed(key: str) -> Consumed:
    return Consumed(A, key, Outcome(1))


def test_blobs_that_nothing_names_are_collected_and_others_stay(disk: OnDisk) -> None:
    store = disk.open()
    inner = run(store.blobs.put(b"named by a blob"))
    history = run(store.blobs.put(f"see {inner.digest}".encode()))
    lost = run(store.blobs.put(b"named by nothing"))
    ref = BlobRef(digest=history.digest, size=history.size)
    run(store.log.append(batch(A, 0, HistoryInherited(at=NOON, parent=SessionId("p"), upto=1, history=ref, how="fork"))))
    assert store.collect_blobs() == 0, "what is young may be on its way into the log"
    for path in (disk.home / "blobs").glob("??/*"):
        os.utime(path, (1, 1))
    assert store.collect_blobs() == 1
    assert store.blobs.get(inner.digest) == b"named by a blob"
    assert not (disk.home / "blobs" / lost.digest[:2] / lost.digest).exists()


def test_appending_after_erasing_everything_audited_writes_no_file_back(disk: OnDisk) -> None:
    store = disk.open()
    run(store.log.append(batch(A, 0, *everything_audited())))
    run(store.log.erase(A, Batch(writes=())))
    store.close()
    again = disk.open()
    assert again.verify() is None
    assert again.log.head(A) == 0


_LOOK = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); print(db.execute('SELECT count(*) FROM entry').fetchone()[0]); db.close()"


def test_a_store_that_is_opened_beside_another_in_the_same_process_takes_no_lock_away_from_it(disk: OnDisk) -> None:
    """Without its lock, the next process that closes the database takes the WAL away, and what is written after that is lost."""

    def seen_by_others() -> int:
        done = subprocess.run([sys.executable, "-c", _LOOK, disk.home / "curtainwall.db"], capture_output=True, text=True, check=True)
        return int(done.stdout)

    store = disk.open()
    run(store.log.append(batch(A, 0, spoke("first"))))
    SqliteStore.open(disk.home, StillClock()).close()
    assert seen_by_others() == 1
    run(store.log.append(batch(A, 1, spoke("second"))))
    assert seen_by_others() == 2


def test_what_would_be_written_to_a_wal_that_was_taken_away_is_refused_instead(disk: OnDisk) -> None:
    store = disk.open()
    run(store.log.append(batch(A, 0, spoke("first"))))
    for suffix in ("-wal", "-shm"):
        (disk.home / f"curtainwall.db{suffix}").unlink()
    with pytest.raises((Broken, TryLater)):
        run(store.log.append(batch(A, 1, spoke("second"))))
