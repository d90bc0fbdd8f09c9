"""Waiting for another process that decides: within bounds, and what was sent is kept."""

import asyncio
from pathlib import Path

import pytest

from curtainwall.model import MessageAccepted, MessageId, Outcome, SendMessage, StreamId, Undecided, session_stream
from curtainwall.runtime import SystemClock
from curtainwall.runtime.sessions.owner import OwnerTimeout
from curtainwall.store import MemoryDisk, MemoryStore
from tests.support.houses import ANN, events, house, kinds, open_session, run, until


def store(disk: MemoryDisk) -> MemoryStore:
    return MemoryStore(SystemClock(), disk)


def message(word: str) -> SendMessage:
    return SendMessage(by=ANN, message=MessageId(word), text=word)


def test_an_owner_that_decides_nothing_is_waited_for_so_long_and_what_was_sent_counts_later(tmp_path: Path) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        async with house(store(disk)) as h:
            session = await open_session(h, tmp_path)
        async with house(store(disk), patience=0.1) as h:
            lease = store(disk).leases.take(session_stream(session))
            assert lease is not None
            for word in ("one", "two"):
                with pytest.raises(Undecided, match="has not decided yet; this is kept and counts as soon as it does"):
                    await h.send(session, message(word), f"key {word}")
            assert kinds(h, session).count("MessageAccepted") == 0
            lease.release()
            async with h.hold(session):
                await until(lambda: kinds(h, session).count("MessageAccepted") == 2)
            told = [event.message for event in events(h, session) if isinstance(event, MessageAccepted)]
            assert told == ["one", "two"]

    run(story())


def test_a_process_that_let_somebody_wait_in_vain_keeps_nobody_waiting_as_long_until_it_decides() -> None:
    async def never() -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    async def at_once() -> Outcome:
        return Outcome(1)

    async def story() -> None:
        owners = {StreamId("session:a"): 7, StreamId("session:b"): 7}
        mine, other = owners
        patience = OwnerTimeout(4.0, owners.get)
        with pytest.raises(Undecided, match=r"process 7 holds session `a` and has not decided yet; .* `kill -CONT 7`"):
            await patience.wait(mine, never())
        waiting = asyncio.create_task(patience.wait(other, never()))
        assert (await asyncio.wait({waiting}, timeout=3.8))[0], "it is waited for a moment alone"
        assert isinstance(waiting.exception(), Undecided)
        assert await patience.wait(mine, at_once()) == Outcome(1)
        waiting = asyncio.create_task(patience.wait(mine, never()))
        assert not (await asyncio.wait({waiting}, timeout=0.7))[0], "it decides again, and is waited for"
        waiting.cancel()
        with pytest.raises(Undecided, match=r"^another process holds session `c` and has not decided yet; this is kept"):
            await OwnerTimeout(0.01, owners.get).wait(StreamId("session:c"), never())

    run(story())
