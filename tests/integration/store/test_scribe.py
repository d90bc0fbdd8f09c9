"""A process that writes for a busy store: what it is given is written once, whatever happens to it."""

import asyncio
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from curtainwall.model import Batch, Conflict, Consumed, Outcome, Post, SessionId, SessionQuery, StreamId, TryLater, Write, inbox_of
from curtainwall.store import SqliteStore
from tests.support.repository import ROOT
from tests.support.stores import (
    A,
    B,
    OnDisk,
    StillClock,
    batch,
    denied,
    everything_audited,
    is_writing,
    line_from,
    message,
    next_change,
    next_named,
    opened,
    process,
    requested,
    run,
    spoke,
    tell,
    until_named,
    writers_of,
)
from tests.support.waiting import eventually, until


def the_writer() -> int | None:
    """Return the process that writes for this one."""
    return next(iter(writers_of(os.getpid())), None)


def audit_of(disk: OnDisk) -> list[str]:
    """Return the lines of a session's audit file."""
    path = disk.home / "sessions" / "a" / "audit.jsonl"
    return path.read_text().splitlines() if path.exists() else []


async def warm(store: SqliteStore, stream: StreamId) -> int:
    """Append until a process has written, and return where the stream ends and which process it is."""
    while True:
        end = store.log.head(stream)
        await store.log.append(batch(stream, end, spoke(f"warm {end}")))
        if (pid := the_writer()) is not None and is_writing(pid):
            return pid


@asynccontextmanager
async def busy(disk: OnDisk, busy_millis: int = 5_000) -> AsyncGenerator[SqliteStore]:
    """Open a store that takes anything for busy."""
    store = SqliteStore.open(disk.home, StillClock(), busy_millis=busy_millis)
    try:
        store.allow_writer_process(crowded=0)
        yield store
    finally:
        store.close()


async def busily(disk: OnDisk) -> SqliteStore:
    """Return a store that a process has written for."""
    store = SqliteStore.open(disk.home, StillClock())
    store.allow_writer_process(crowded=0)
    await warm(store, A)
    return store


def test_a_quiet_store_starts_no_process(disk: OnDisk) -> None:
    async def scenario() -> None:
        store = disk.open()
        store.allow_writer_process()
        for end in range(20):
            await store.log.append(batch(A, end, spoke(f"{end}")))
        assert the_writer() is None

    run(scenario())


def test_what_could_not_be_taken_does_not_count_as_under_way(disk: OnDisk) -> None:
    async def scenario() -> None:
        store = disk.open()
        store.allow_writer_process(crowded=1)
        # More than there is room for.
        usual = threading.stack_size(1 << 46)
        try:
            with pytest.raises(TryLater, match="no room for one more thread"):
                await store.log.append(batch(A, 0, spoke("not taken")))
        finally:
            threading.stack_size(usual)
        for end in range(20):
            await store.log.append(batch(A, end, spoke(f"{end}")))
        assert the_writer() is None

    run(scenario())


def test_a_process_writes_for_a_busy_store_and_ends_with_it(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk) as store:
            pid = await warm(store, B)
            assert await store.log.append(batch(A, 0, *everything_audited())) == {A: len(everything_audited())}
            await store.inbox.post(Post(A, "k1", message()))
            assert [row.key for row in store.inbox.waiting(A)] == ["k1"]
            outcome = Outcome(seq=1)
            await store.log.append(Batch((), (Consumed(A, "k1", outcome),)))
            assert store.inbox.outcome(A, "k1") == outcome
        assert len(audit_of(disk)) == 12
        assert the_writer() is None
        assert not is_writing(pid)

    run(scenario())
    again = disk.open()
    assert again.verify() is None
    assert len(again.log.read(A)) == len(everything_audited())
    assert again.verify_audit(SessionId("a")) is None
    assert [row.name for row in again.index.sessions(SessionQuery())] == ["name of a"], "lists are kept as well"


def test_what_it_refuses_is_refused_as_anywhere(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk) as store:
            await warm(store, B)
            await store.log.append(batch(A, 0, spoke("first")))
            both = await asyncio.gather(
                store.log.append(batch(A, 0, spoke("too late"))),
                store.log.append(batch(A, 1, spoke("second"))),
                return_exceptions=True,
            )
            assert isinstance(both[0], Conflict)
            assert both[1] == {A: 2}

    run(scenario())


def test_a_database_that_another_process_locks_is_told_and_waited_for(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk, busy_millis=200) as store:
            pid = await warm(store, A)
            end = store.log.head(A)
            other = sqlite3.connect(disk.home / "curtainwall.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(TryLater, match="locked by another process"):
                await store.log.append(batch(A, end, spoke("kept out")))
            other.execute("ROLLBACK")
            other.close()
            assert await store.log.append(batch(A, end, spoke("let in"))) == {A: end + 1}
            assert the_writer() == pid

    run(scenario())


def test_watchers_here_and_elsewhere_hear_of_it(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk) as store:
            await warm(store, B)
            other = disk.open()
            async with store.log.watch() as here, other.log.watch() as there:
                await store.log.append(batch(A, 0, spoke("heard")))
                await store.inbox.post(Post(A, "k1", message()))
                await until_named(here, [A, inbox_of(A)])
                await until_named(there, [A, inbox_of(A)])
                end = other.log.head(A)
                await other.log.append(batch(A, end, spoke("from elsewhere")))
                await next_named(here)

    run(scenario())


def test_what_others_write_before_it_looks_for_the_first_time_is_heard(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk) as store:
            await warm(store, B)
            async with store.log.watch() as changes:
                # No word of it but what the database tells.
                other = sqlite3.connect(disk.home / "curtainwall.db", isolation_level=None)
                other.execute("UPDATE seal SET one = one")
                other.close()
                assert await next_change(changes) == frozenset()

    run(scenario())


def test_signals_for_a_group_of_processes_do_not_end_it(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk) as store:
            pid = await warm(store, A)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(pid, number)
            end = store.log.head(A)
            await store.log.append(batch(A, end, spoke("still there")))
            assert the_writer() == pid

    run(scenario())


def test_nothing_is_lost_or_written_twice_when_it_is_killed_again_and_again(disk: OnDisk) -> None:
    streams = [StreamId(f"session:{name}") for name in "abcdef"]
    killed = 0
    chance = random.Random(7)

    async def talk(store: SqliteStore, stream: StreamId, done: asyncio.Event) -> int:
        """Append, post and decide, each once; a refusal would be a batch that was written twice."""
        count = 0
        await store.log.append(batch(stream, 0, opened(stream.removeprefix("session:"))))
        while not done.is_set():
            end, key = 1 + count, f"{stream} {count}"
            await store.inbox.post(Post(stream, key, message()))
            written = Batch((Write(stream, end, (spoke(key),)),), (Consumed(stream, key, Outcome(seq=end + 1)),))
            assert await store.log.append(written) == {stream: end + 1}
            await store.log.append(Batch((), (Consumed(stream, f"{key} refused", Outcome(code="refused", message="no")),)))
            count += 1
        return count

    async def scenario() -> list[int]:
        nonlocal killed
        done = asyncio.Event()
        async with busy(disk) as store:
            talks = [asyncio.create_task(talk(store, stream, done)) for stream in streams]
            for _ in range(4):
                pid = await eventually(the_writer)
                await eventually(lambda: is_writing(pid))  # noqa: B023 - awaited here
                await asyncio.sleep(chance.random() * 0.05)
                os.kill(pid, signal.SIGKILL)
                await eventually(lambda: pid not in writers_of(os.getpid()))  # noqa: B023 - awaited here
                killed += 1
            done.set()
            return await asyncio.gather(*talks)

    counts = run(scenario())
    store = disk.open()
    assert killed == 4
    assert store.verify() is None
    for stream, count in zip(streams, counts, strict=True):
        told = [entry.payload for entry in store.log.read(stream)]
        assert len(told) == 1 + count
        assert all(f"{stream} {number}".encode() in payload for number, payload in enumerate(told[1:]))
        assert store.inbox.waiting(stream) == []
    assert min(counts) > 0


def test_audit_files_that_it_left_behind_are_caught_up(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk) as store:
            pid = await warm(store, B)
            await store.log.append(batch(A, 0, *everything_audited()))
            # Audit files follow a moment later.
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda: len(audit_of(disk)) == 12)
            await eventually(lambda: store.verify_audit(SessionId("a")) is None)

    run(scenario())


def test_audit_files_that_it_left_behind_are_caught_up_however_many_they_are(disk: OnDisk) -> None:
    names = [f"s{number}" for number in range(1_100)]

    def is_told(name: str) -> bool:
        return (disk.home / "sessions" / name / "audit.jsonl").exists()

    async def scenario() -> None:
        async with busy(disk) as store, store.log.watch():
            pid = await warm(store, B)
            await asyncio.gather(*(store.log.append(batch(StreamId(f"session:{name}"), 0, opened(name), denied())) for name in names))
            # One that a busy machine kept from answering was given up already, and has left behind no less.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            await eventually(lambda: all(map(is_told, names)), bound=200)

    run(scenario())


def test_the_log_knows_which_audit_files_are_complete_also_once_the_thread_writes_again(disk: OnDisk) -> None:
    async def crowd(store: SqliteStore) -> None:
        streams = [StreamId(f"session:c{number}") for number in range(10)]
        await asyncio.gather(*(store.log.append(batch(stream, store.log.head(stream), spoke())) for stream in streams))

    async def scenario() -> None:
        store = disk.open()
        store.allow_writer_process(crowded=5)
        while (pid := the_writer()) is None or not is_writing(pid):
            await crowd(store)
        await asyncio.gather(crowd(store), store.log.append(batch(A, 0, *everything_audited())))
        # One thing after the other: the turn goes back to the thread. Files are synced once no more comes.
        began, end = time.monotonic(), 0
        while time.monotonic() - began < 3:
            await store.log.append(batch(B, end, requested(f"c{end}")))
            end += 1
        audit = disk.home / "sessions" / "a" / "audit.jsonl"
        await eventually(lambda: len(audit_of(disk)) == 12)
        whole = audit.read_bytes()
        audit.write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 1])
        fault = await eventually(lambda: store.verify_audit(SessionId("a")))
        assert fault.what == "cut off"

    run(scenario())


def test_one_that_hangs_is_given_up_and_what_it_was_given_is_written_all_the_same(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk, busy_millis=50) as store, store.log.watch():
            pid = await warm(store, A)
            end = store.log.head(A)
            os.kill(pid, signal.SIGSTOP)
            assert await store.log.append(batch(A, end, spoke("not forgotten"))) == {A: end + 1}
            assert pid not in writers_of(os.getpid())

    run(scenario())


def test_one_that_is_stopped_holds_up_nobody_for_long(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk) as store:
            pid = await warm(store, A)
            end = store.log.head(A)
            os.kill(pid, signal.SIGSTOP)
            async with asyncio.timeout(10):
                assert await store.log.append(batch(A, end, spoke("not forgotten"))) == {A: end + 1}
            assert pid not in writers_of(os.getpid())

    run(scenario())


def test_one_that_is_stopped_with_nothing_to_do_is_ended_as_well_since_it_may_hold_the_database(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk) as store:
            pid = await warm(store, A)
            os.kill(pid, signal.SIGSTOP)
            await eventually(lambda: pid not in writers_of(os.getpid()), bound=10)

    run(scenario())


def test_one_that_waits_for_the_database_is_not_taken_for_one_that_is_stopped(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk, busy_millis=4_000) as store:
            pid = await warm(store, A)
            other = sqlite3.connect(disk.home / "curtainwall.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(TryLater, match="locked by another process"):
                await store.log.append(batch(A, store.log.head(A), spoke("kept out")))
            other.close()
            assert the_writer() == pid

    run(scenario())


def test_a_house_that_was_stopped_together_with_it_goes_on_with_the_same_one(disk: OnDisk) -> None:
    with process("append_apart", str(disk.home), A) as house:
        assert line_from(house) == "apart"
        [pid] = writers_of(house.pid)
        for each in (pid, house.pid):
            os.kill(each, signal.SIGSTOP)
        # For longer than it may be silent.
        time.sleep(3)
        for each in (house.pid, pid):
            os.kill(each, signal.SIGCONT)
            time.sleep(0.1)
        end = (store := disk.open()).log.head(A)
        until(lambda: store.log.head(A) > end + 100)
        assert writers_of(house.pid) == [pid]


def test_what_it_leaves_is_answered_also_where_no_thread_can_take_it_over(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk) as store:
            # More than there is room for.
            usual = threading.stack_size(1 << 46)
            try:
                end = 0
                while not end:
                    with suppress(TryLater):
                        end = (await store.log.append(batch(A, 0, spoke("by the process"))))[A]
                    await asyncio.sleep(0.01)
                pid = await eventually(the_writer)
                os.kill(pid, signal.SIGSTOP)
                late = asyncio.create_task(store.log.append(batch(A, end, spoke("perhaps"))))
                await asyncio.sleep(0)
                os.kill(pid, signal.SIGKILL)
                with pytest.raises(TryLater, match="not known whether this was written"):
                    await asyncio.wait_for(late, 20)
                with pytest.raises(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it returns at once
            finally:
                threading.stack_size(usual)

    run(scenario())


def test_one_that_has_nothing_to_do_for_long_is_let_go_and_comes_back_when_it_is_wanted(disk: OnDisk) -> None:
    async def scenario() -> None:
        store = disk.open()
        store.allow_writer_process(crowded=0, quiet=1)
        pid = await warm(store, A)
        await store.log.append(batch(B, 0, *everything_audited()))
        await eventually(lambda: the_writer() is None)
        assert len((disk.home / "sessions" / "b" / "audit.jsonl").read_text().splitlines()) == 12, "it finished what it had begun"
        async with store.log.watch() as changes:
            other = sqlite3.connect(disk.home / "curtainwall.db", isolation_level=None)
            other.execute("UPDATE seal SET one = one")
            other.close()
            assert await next_change(changes) == frozenset(), "the thread looks again"
        assert await warm(store, A) != pid

    run(scenario())


def test_a_loss_counts_no_more_after_one_that_was_let_go(disk: OnDisk, caplog: pytest.LogCaptureFixture) -> None:
    def heard() -> list[str]:
        # What another test left behind may be swept up here, and told by asyncio.
        return [record.getMessage() for record in caplog.records if record.name != "asyncio"]

    async def lose(store: SqliteStore) -> None:
        told = len(heard())
        os.kill(await warm(store, A), signal.SIGKILL)
        await eventually(lambda: len(heard()) > told)

    async def scenario() -> None:
        store = disk.open()
        store.allow_writer_process(crowded=0, quiet=1)
        await lose(store)
        await warm(store, A)
        await eventually(lambda: the_writer() is None)
        await lose(store)

    run(scenario())
    told = "the process that writes ended by itself; a thread does so for 1 seconds at least"
    assert heard() == [told, told]


def test_a_store_closes_also_while_one_that_was_let_go_does_not_end(disk: OnDisk) -> None:
    async def scenario() -> None:
        store = disk.open()
        store.allow_writer_process(crowded=0, quiet=0)
        pid = await warm(store, A)
        os.kill(pid, signal.SIGSTOP)
        # It is let go within one beat, and given up after four.
        await asyncio.sleep(1)
        began = time.monotonic()
        store.close()
        assert time.monotonic() - began < 4.5
        assert pid not in writers_of(os.getpid())

    run(scenario())
    assert disk.open().verify() is None


def test_asking_for_a_process_twice_leaves_one(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk) as store:
            pid = await warm(store, A)
            store.allow_writer_process(crowded=0)
            assert await warm(store, A) == pid
            assert writers_of(os.getpid()) == [pid]
        assert the_writer() is None

    run(scenario())


def test_a_later_loop_that_asks_for_a_process_gets_one_of_its_own(disk: OnDisk) -> None:
    store = asyncio.run(busily(disk))
    first = the_writer()

    async def scenario() -> None:
        store.allow_writer_process(crowded=0)
        # It was killed, or ended by itself a moment ago.
        until(lambda: the_writer() is None)
        assert await warm(store, A) != first

    run(scenario())
    store.close()
    assert the_writer() is None


@pytest.mark.parametrize("unknown", [None, ""])
def test_a_house_that_does_not_know_what_runs_python_writes_by_itself(
    disk: OnDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, unknown: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", unknown)

    async def scenario() -> None:
        async with busy(disk) as store:
            for end in range(3):
                assert await store.log.append(batch(A, end, spoke(f"{end}"))) == {A: end + 1}

    run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "the process that writes cannot be started: it is not known which program runs Python; a thread does so for 1 seconds at least"
    ]


def test_a_store_that_closes_while_it_hangs_writes_what_is_left_itself(disk: OnDisk) -> None:
    async def scenario() -> None:
        store = SqliteStore.open(disk.home, StillClock(), busy_millis=50)
        store.allow_writer_process(crowded=0)
        pid = await warm(store, A)
        end = store.log.head(A)
        os.kill(pid, signal.SIGSTOP)
        late = asyncio.create_task(store.log.append(batch(A, end, spoke("the last word"))))
        await asyncio.sleep(0)
        store.close()
        assert await late == {A: end + 1}
        assert the_writer() is None

    run(scenario())
    assert b"the last word" in disk.open().log.read(A)[-1].payload


def test_a_store_closes_also_where_it_hangs_with_nothing_to_do(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk) as store:
            os.kill(await warm(store, A), signal.SIGSTOP)
            began = time.monotonic()
        assert time.monotonic() - began < 4.5
        assert the_writer() is None

    run(scenario())
    assert disk.open().verify() is None


def test_a_store_closes_at_once_with_much_to_send_and_much_to_hear(disk: OnDisk) -> None:
    async def scenario() -> None:
        async with busy(disk, busy_millis=3_000) as store:
            await warm(store, B)
            refused = [asyncio.create_task(store.log.append(batch(A, 99, spoke("refused")))) for _ in range(6_000)]
            # Each round of the loop is an order of its own.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            large = asyncio.create_task(store.log.append(batch(A, 0, spoke("x" * 4_000_000))))
            await asyncio.sleep(0)
            began = time.monotonic()
            store.close()
            assert time.monotonic() - began < 30, "it was taken for one that hangs"
            assert await large == {A: 1}
            assert {type(each) for each in await asyncio.gather(*refused, return_exceptions=True)} == {Conflict}

    run(scenario())


def test_a_store_closes_after_its_loop_was_and_writes_what_was_left(disk: OnDisk) -> None:
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(busily(disk))
    end = store.log.head(A)
    late = loop.create_task(store.log.append(batch(A, end, spoke("the last word"))))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    store.close()
    assert not late.done()
    assert the_writer() is None
    assert b"the last word" in disk.open().log.read(A)[end].payload


def test_watchers_of_a_later_loop_hear_of_others(disk: OnDisk) -> None:
    store = asyncio.run(busily(disk))

    async def scenario() -> None:
        async with store.log.watch() as changes:
            # No word of it but what the database tells.
            other = sqlite3.connect(disk.home / "curtainwall.db", isolation_level=None)
            look = asyncio.create_task(next_change(changes))
            while not look.done():
                other.execute("UPDATE seal SET one = one")
                await asyncio.sleep(0.1)
            assert await look == frozenset()
            other.close()

    run(scenario())
    store.close()


def test_a_house_whose_program_was_replaced_meanwhile_writes_on_by_itself(disk: OnDisk, tmp_path: Path) -> None:
    copy = tmp_path / "curtainwall"
    shutil.copytree(ROOT / "src" / "curtainwall", copy)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-P", "-m", "tests.support.store_process", "append_until_alone", str(disk.home), A]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as house:
        try:
            assert line_from(house) == str(copy / "store" / "disk" / "store.py")
            # A newer one, of another format.
            database = copy / "store" / "database.py"
            before = database.read_text()
            database.write_text(re.sub(r"^FORMAT = (\d+)$", "FORMAT = 1000", before, flags=re.MULTILINE))
            assert database.read_text() != before
            (copy / "store" / "disk" / "protocol.py").touch()
            tell(house)
            assert line_from(house) == "alone"
        finally:
            house.kill()
    assert disk.open().verify() is None


def test_it_takes_no_code_from_places_that_the_house_itself_does_not(disk: OnDisk, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign" / "curtainwall"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'taken')!r}).touch()\n")
    main = f"import sys, runpy; sys.path.append({str(ROOT)!r}); runpy.run_module('tests.support.store_process', run_name='__main__')"
    command = [sys.executable, "-I", "-c", main, "append_apart", str(disk.home), A]
    environ = {**os.environ, "PYTHONPATH": str(foreign.parent)}
    with subprocess.Popen(command, env=environ, cwd=foreign.parent, stdout=subprocess.DEVNULL) as house:
        try:
            until(lambda: any(map(is_writing, writers_of(house.pid))))
        finally:
            house.kill()
    assert not (tmp_path / "taken").exists()


def test_it_ends_with_a_house_that_is_killed(disk: OnDisk) -> None:
    with process("append_apart", str(disk.home), A) as house:
        assert line_from(house) == "apart"
        [pid] = writers_of(house.pid)
        house.kill()
        house.wait()
        until(lambda: not Path(f"/proc/{pid}").exists())
    store = disk.open()
    assert store.verify() is None
    assert store.log.head(A) > 0
