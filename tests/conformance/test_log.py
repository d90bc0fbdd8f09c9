"""What every log promises: order, expected ends, all or nothing, and that watchers hear of it."""

import asyncio

import pytest

from curtainwall.model import (
    HOUSE,
    AgentSpoke,
    Batch,
    Conflict,
    Consumed,
    Outcome,
    Post,
    SessionQuery,
    StreamId,
    Write,
    decode_event,
    inbox_of,
    project_stream,
)
from tests.support.stores import NOON, A, B, Disk, Store, batch, granted, message, next_change, next_named, opened, run, spoke, until_named


def texts(store: Store, stream: StreamId) -> list[str]:
    """Return what the agent said in a stream."""
    events = [decode_event(entry.kind, entry.payload) for entry in store.log.read(stream)]
    return [event.text for event in events if isinstance(event, AgentSpoke)]


def test_entries_come_back_in_order_with_their_places(store: Store) -> None:
    run(store.log.append(batch(A, 0, spoke("one"), spoke("two"))))
    assert run(store.log.append(batch(A, 2, spoke("three")))) == {A: 3}
    entries = store.log.read(A)
    assert [(entry.stream, entry.seq, entry.kind, entry.version) for entry in entries] == [(A, n, "AgentSpoke", 1) for n in (1, 2, 3)]
    assert texts(store, A) == ["one", "two", "three"]
    assert store.log.head(A) == 3


def test_reading_goes_on_from_a_cursor_and_stops_at_a_limit(store: Store) -> None:
    run(store.log.append(batch(A, 0, *(spoke(str(n)) for n in range(10)))))
    assert [entry.seq for entry in store.log.read(A, after=7)] == [8, 9, 10]
    assert [entry.seq for entry in store.log.read(A, after=2, limit=3)] == [3, 4, 5]
    assert store.log.read(A, after=10) == []
    assert store.log.read(A, limit=0) == []


def test_a_stream_that_nobody_wrote_is_empty(store: Store) -> None:
    assert store.log.head(A) == 0
    assert store.log.read(A) == []


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_a_wrong_expected_end_is_a_conflict_and_writes_nothing(store: Store, expected: int) -> None:
    run(store.log.append(batch(A, 0, spoke("one"), spoke("two"))))
    with pytest.raises(Conflict, match="ends at entry 2"):
        run(store.log.append(batch(A, expected, spoke("never"))))
    assert texts(store, A) == ["one", "two"]


def test_a_batch_over_two_streams_is_written_whole_or_not_at_all(store: Store) -> None:
    run(store.log.append(Batch(writes=(Write(A, 0, (spoke("a"),)), Write(B, 0, (spoke("b"),))))))
    with pytest.raises(Conflict):
        run(store.log.append(Batch(writes=(Write(A, 1, (spoke("never"),)), Write(B, 7, (spoke("never"),))))))
    assert (texts(store, A), texts(store, B)) == (["a"], ["b"])


def test_a_write_without_events_only_checks(store: Store) -> None:
    assert run(store.log.append(Batch(writes=(Write(A, 0, ()), Write(B, 0, (spoke(),)))))) == {A: 0, B: 1}
    with pytest.raises(Conflict):
        run(store.log.append(Batch(writes=(Write(B, 0, ()), Write(A, 0, (spoke(),))))))
    assert store.log.head(A) == 0


def test_two_writes_to_one_stream_in_a_batch_follow_each_other(store: Store) -> None:
    assert run(store.log.append(Batch(writes=(Write(A, 0, (spoke("one"),)), Write(A, 1, (spoke("two"),)))))) == {A: 2}
    assert texts(store, A) == ["one", "two"]


def test_of_writers_that_expect_the_same_end_exactly_one_wins(store: Store) -> None:
    async def all_at_once() -> list[object]:
        return await asyncio.gather(*(store.log.append(batch(A, 0, spoke(str(n)))) for n in range(50)), return_exceptions=True)

    results = run(all_at_once())
    assert results.count({A: 1}) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 49
    assert len(texts(store, A)) == 1


def test_batches_that_wait_together_see_each_other(store: Store) -> None:
    async def in_a_row() -> list[object]:
        return await asyncio.gather(*(store.log.append(batch(A, n, spoke(str(n)))) for n in range(100)), return_exceptions=True)

    assert run(in_a_row()) == [{A: n + 1} for n in range(100)]
    assert texts(store, A) == [str(n) for n in range(100)]


def test_a_conflict_does_not_touch_its_neighbours(store: Store) -> None:
    async def mixed() -> list[object]:
        streams = [StreamId(f"session:{n}") for n in range(20)]
        writes = [store.log.append(batch(stream, n % 2, spoke())) for n, stream in enumerate(streams)]
        return await asyncio.gather(*writes, return_exceptions=True)

    results = run(mixed())
    assert [isinstance(result, Conflict) for result in results] == [bool(n % 2) for n in range(20)]


def test_each_entry_is_bound_to_the_one_before_it(store: Store) -> None:
    run(store.log.append(batch(A, 0, spoke("same"), spoke("same"))))
    run(store.log.append(batch(B, 0, spoke("same"))))
    hashes = [entry.hash for entry in (*store.log.read(A), *store.log.read(B))]
    assert len({*hashes}) == 3
    assert {len(digest) for digest in hashes} == {32}


def test_a_second_store_reads_what_the_first_wrote_and_goes_on(disk: Disk) -> None:
    first, second = disk.open(), disk.open()
    run(first.log.append(batch(A, 0, spoke("one"))))
    assert texts(second, A) == ["one"]
    run(second.log.append(batch(A, 1, spoke("two"))))
    run(first.log.append(batch(A, 2, spoke("three"))))
    with pytest.raises(Conflict):
        run(second.log.append(batch(A, 2, spoke("never"))))
    assert texts(second, A) == ["one", "two", "three"]


def test_watchers_hear_which_streams_changed(disk: Disk) -> None:
    store, other = disk.open(), disk.open()

    async def watch() -> None:
        async with store.log.watch() as changes:
            await store.log.append(batch(A, 0, spoke()))
            assert await next_change(changes) == {A}
            await other.log.append(batch(B, 0, spoke()))
            await until_named(changes, [B])
            await other.inbox.post(Post(A, "key", message()))
            await until_named(changes, [inbox_of(A)])

    run(watch())


def test_watchers_who_name_what_concerns_them_hear_of_nothing_else(disk: Disk) -> None:
    store, other = disk.open(), disk.open()
    concerning = {B}

    async def watch() -> None:
        async with store.log.watch(lambda name: name in concerning) as changes:
            for each in (store, other):
                await each.log.append(batch(A, each.log.head(A), spoke()))
                await each.log.append(batch(B, each.log.head(B), spoke()))
                assert await next_named(changes) == {B}
            # They are asked anew each time.
            concerning.add(A)
            await store.log.append(batch(A, store.log.head(A), spoke()))
            assert await next_named(changes) == {A}

    run(watch())


def test_changes_coalesce_while_nobody_takes_them(store: Store) -> None:
    async def watch() -> frozenset[StreamId]:
        async with store.log.watch() as changes:
            for n in range(30):
                await store.log.append(batch(StreamId(f"session:{n}"), 0, spoke()))
            return await next_change(changes)

    assert len(run(watch())) == 30


def test_a_conflict_is_not_a_change(store: Store) -> None:
    async def watch() -> frozenset[StreamId]:
        async with store.log.watch() as changes:
            with pytest.raises(Conflict):
                await store.log.append(batch(A, 9, spoke()))
            await store.log.append(batch(B, 0, spoke()))
            return await next_change(changes)

    assert run(watch()) == {B}


def test_erasing_takes_the_stream_its_inbox_and_its_rows_and_keeps_the_record(store: Store) -> None:
    project = project_stream("/p")
    run(store.log.append(batch(A, 0, opened("a"), granted())))
    run(store.log.append(batch(project, 0, granted("g2"))))
    run(store.inbox.post(Post(A, "key", message())))
    gone = Outcome(code="not-found", message="a is gone")
    record = (Write(A, 2, ()), Write(HOUSE, 0, (spoke("a is gone"),)))
    run(store.log.erase(A, Batch(record, (Consumed(A, "key", gone),))))
    assert (store.log.head(A), store.log.read(A), store.inbox.waiting(A)) == (0, [], [])
    assert store.inbox.outcome(A, "key") == gone, "whoever waits for it is told"
    assert store.index.sessions(SessionQuery()) == []
    assert [row.stream for row in store.index.grants(all_of_them=True)] == [project]
    assert texts(store, HOUSE) == ["a is gone"]
    run(store.log.append(batch(A, 0, opened("a", NOON + 1))))
    assert store.log.head(A) == 1


def test_erasing_a_stream_that_went_on_meanwhile_is_a_conflict(store: Store) -> None:
    run(store.log.append(batch(A, 0, opened("a"), spoke())))
    with pytest.raises(Conflict):
        run(store.log.erase(A, Batch(writes=(Write(A, 1, ()), Write(HOUSE, 0, (spoke("a is gone"),))))))
    assert (store.log.head(A), store.log.head(HOUSE)) == (2, 0)


@pytest.mark.parametrize("at_once", [False, True])
def test_erasing_a_stream_for_which_a_command_came_meanwhile_is_a_conflict(store: Store, at_once: bool) -> None:
    record = Batch((Write(A, 1, ()), Write(HOUSE, 0, (spoke("a is gone"),))))

    async def posted_and_erased() -> None:
        if at_once:
            await asyncio.gather(store.inbox.post(Post(A, "key", message())), store.log.erase(A, record))
        else:
            await store.inbox.post(Post(A, "key", message()))
            await store.log.erase(A, record)

    run(store.log.append(batch(A, 0, opened("a"))))
    with pytest.raises(Conflict):
        run(posted_and_erased())
    assert (store.log.head(A), store.log.head(HOUSE)) == (1, 0)
    assert [row.key for row in store.inbox.waiting(A)] == ["key"]


def test_a_cancelled_append_leaves_the_store_usable(store: Store) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(store.log.append(batch(A, 0, spoke())))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.log.append(batch(B, 0, spoke()))

    run(cancel())
    assert store.log.head(B) == 1
