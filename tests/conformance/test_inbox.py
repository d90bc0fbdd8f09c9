"""What every inbox promises: order, idempotent keys, and that a command is decided exactly once."""

import asyncio

import pytest

from curtainwall.model import Batch, Conflict, Consumed, Outcome, Post, SendMessage, Write
from tests.support.stores import A, B, Disk, Store, batch, message, run, spoke


def said(store: Store) -> list[str]:
    """Return what waits for the stream, as text."""
    return [waiting.command.text for waiting in store.inbox.waiting(A) if isinstance(waiting.command, SendMessage)]


def decide(key: str, expected: int, outcome: Outcome) -> Batch:
    """Return a batch that decides one command with one event."""
    return Batch(writes=(Write(A, expected, (spoke(),)),), consumed=(Consumed(A, key, outcome),))


def test_commands_wait_in_the_order_in_which_they_came(store: Store) -> None:
    for text in ("one", "two", "three"):
        run(store.inbox.post(Post(A, text, message(text))))
    run(store.inbox.post(Post(B, "one", message("elsewhere"))))
    assert said(store) == ["one", "two", "three"]
    assert [waiting.key for waiting in store.inbox.waiting(A)] == ["one", "two", "three"]
    rows = [waiting.row for waiting in store.inbox.waiting(A)]
    assert rows == sorted(rows)


def test_the_same_key_twice_is_the_same_command(store: Store) -> None:
    run(store.inbox.post(Post(A, "key", message("first"))))
    run(store.inbox.post(Post(A, "key", message("second"))))
    assert said(store) == ["first"]


def test_the_same_key_from_many_at_once_is_one_command(store: Store) -> None:
    async def many() -> None:
        await asyncio.gather(*(store.inbox.post(Post(A, "key", message())) for _ in range(40)))

    run(many())
    assert len(store.inbox.waiting(A)) == 1


def test_a_decided_command_no_longer_waits_and_tells_its_outcome(store: Store) -> None:
    run(store.inbox.post(Post(A, "key", message())))
    assert store.inbox.outcome(A, "key") is None
    run(store.log.append(decide("key", 0, Outcome(seq=1))))
    assert store.inbox.waiting(A) == []
    assert store.inbox.outcome(A, "key") == Outcome(seq=1)


def test_a_refusal_is_an_outcome_too(store: Store) -> None:
    refused = Outcome(code="closed", message="the session has ended")
    run(store.inbox.post(Post(A, "key", message())))
    run(store.log.append(Batch(writes=(Write(A, 0, ()),), consumed=(Consumed(A, "key", refused),))))
    assert store.inbox.outcome(A, "key") == refused


def test_a_command_is_decided_once_and_the_second_decision_writes_nothing(disk: Disk) -> None:
    first, second = disk.open(), disk.open()
    run(first.inbox.post(Post(A, "key", message())))
    run(first.log.append(decide("key", 0, Outcome(seq=1))))
    with pytest.raises(Conflict, match="decided by someone else"):
        run(second.log.append(decide("key", 1, Outcome(seq=2))))
    assert second.log.head(A) == 1
    assert second.inbox.outcome(A, "key") == Outcome(seq=1)


def test_of_many_who_decide_the_same_command_at_once_one_wins(store: Store) -> None:
    async def all_at_once() -> list[object]:
        return await asyncio.gather(*(store.log.append(decide("key", n, Outcome(seq=n + 1))) for n in range(20)), return_exceptions=True)

    run(store.inbox.post(Post(A, "key", message())))
    results = run(all_at_once())
    assert results[0] == {A: 1}
    assert all(isinstance(result, Conflict) for result in results[1:])


def test_a_command_that_the_owner_took_directly_keeps_its_key(store: Store) -> None:
    run(store.log.append(decide("key", 0, Outcome(seq=1))))
    run(store.inbox.post(Post(A, "key", message())))
    assert store.inbox.waiting(A) == []
    assert store.inbox.outcome(A, "key") == Outcome(seq=1)
    with pytest.raises(Conflict):
        run(store.log.append(decide("key", 1, Outcome(seq=2))))


def test_a_conflict_leaves_the_command_waiting(store: Store) -> None:
    run(store.inbox.post(Post(A, "key", message())))
    with pytest.raises(Conflict):
        run(store.log.append(decide("key", 5, Outcome(seq=6))))
    assert said(store) == ["hello"]


def test_a_message_to_another_stream_travels_with_the_events_that_send_it(store: Store) -> None:
    run(store.log.append(Batch(writes=(Write(B, 0, (spoke("sent"),)),), posts=(Post(A, "key", message("from b")),))))
    assert said(store) == ["from b"]
    with pytest.raises(Conflict):
        run(store.log.append(Batch(writes=(Write(B, 0, (spoke(),)),), posts=(Post(A, "other", message("never")),))))
    assert said(store) == ["from b"]


def test_posts_and_decisions_that_wait_together_agree(store: Store) -> None:
    async def together() -> None:
        posts = [store.inbox.post(Post(A, f"k{n}", message(f"m{n}"))) for n in range(10)]
        await asyncio.gather(*posts, store.log.append(decide("k3", 0, Outcome(seq=1))), store.inbox.post(Post(A, "k3", message("again"))))

    run(together())
    assert said(store) == [f"m{n}" for n in range(10) if n != 3]
    assert store.log.head(A) == len(store.log.read(A)) == 1


def test_what_waits_is_there_for_the_next_store(disk: Disk) -> None:
    first = disk.open()
    run(first.inbox.post(Post(A, "key", message("still here"))))
    first.close()
    assert said(disk.open()) == ["still here"]


def test_an_unknown_key_has_no_outcome(store: Store) -> None:
    assert store.inbox.outcome(A, "nothing") is None
    run(store.log.append(batch(A, 0, spoke())))
    assert store.inbox.outcome(A, "nothing") is None


def test_the_streams_for_which_a_command_waits_are_named(store: Store) -> None:
    assert list(store.inbox.streams_waiting()) == []
    for stream, key in ((B, "one"), (A, "one"), (A, "two")):
        run(store.inbox.post(Post(stream, key, message())))
    assert list(store.inbox.streams_waiting()) == [A, B]
    run(store.log.append(Batch(writes=(Write(B, 0, ()),), consumed=(Consumed(B, "one", Outcome(seq=1)),))))
    assert list(store.inbox.streams_waiting()) == [A]
