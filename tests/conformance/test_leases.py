"""What every lease promises: one holder at a time, until it lets go."""

import os

from curtainwall.model import freed_lease, wanted_lease
from tests.support.stores import NOON, A, B, Disk, next_named, run


def test_one_stream_has_one_owner_among_all_stores(disk: Disk) -> None:
    first, second = disk.open(), disk.open()
    lease = first.leases.take(A)
    assert lease is not None
    assert second.leases.take(A) is None
    assert first.leases.take(A) is None, "two takers in one process exclude each other too"
    lease.release()
    assert second.leases.take(A) is not None


def test_streams_are_owned_independently(disk: Disk) -> None:
    first, second = disk.open(), disk.open()
    assert first.leases.take(A) is not None
    assert second.leases.take(B) is not None


def test_the_owner_is_told_while_there_is_one(disk: Disk) -> None:
    first, second = disk.open(), disk.open()
    assert second.leases.owner(A) is None
    lease = first.leases.take(A)
    owner = second.leases.owner(A)
    assert lease is not None
    assert owner is not None
    assert (owner.pid, owner.since) == (os.getpid(), NOON)
    assert second.leases.owner(B) is None
    lease.release()
    assert second.leases.owner(A) is None


def test_letting_go_twice_does_not_take_the_lease_from_the_next_owner(disk: Disk) -> None:
    first, second = disk.open(), disk.open()
    lease = first.leases.take(A)
    assert lease is not None
    lease.release()
    assert second.leases.take(A) is not None
    lease.release()
    assert first.leases.take(A) is None


def test_closing_a_store_lets_go_of_its_leases(disk: Disk) -> None:
    first, second = disk.open(), disk.open()
    assert first.leases.take(A) is not None
    first.close()
    assert second.leases.take(A) is not None


def test_a_stream_can_be_owned_before_it_has_entries_and_many_can_be(disk: Disk) -> None:
    store, other = disk.open(), disk.open()
    streams = [type(A)(f"session:{n}") for n in range(200)]
    leases = [store.leases.take(stream) for stream in streams]
    assert all(leases)
    assert not any(other.leases.take(stream) for stream in streams)


def test_what_is_told_of_a_lease_is_heard_by_the_watchers_of_every_store(disk: Disk) -> None:
    first, second = disk.open(), disk.open()

    async def watch() -> None:
        async with first.log.watch() as here, second.log.watch() as there:
            for news in (wanted_lease(A), freed_lease(A)):
                first.leases.tell(news)
                assert [await next_named(changes) for changes in (here, there)] == [{news}, {news}]

    run(watch())


def test_nobody_hears_of_leases_from_a_store_that_is_closed(disk: Disk) -> None:
    closed, other = disk.open(), disk.open()

    async def watch() -> None:
        async with other.log.watch() as changes:
            closed.close()
            closed.leases.tell(freed_lease(A))
            other.leases.tell(wanted_lease(A))
            assert await next_named(changes) == {wanted_lease(A)}, "and of nothing before it"

    run(watch())
