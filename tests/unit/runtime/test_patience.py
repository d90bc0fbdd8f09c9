"""Waiting for another process that decides: within bounds, and what was sent is kept."""

import asyncio
from pathlib import Path

import pytest

from curtainwall.model import MessageAccepted, MessageId, Outcome, SendMessage, StreamId, Undecided, session_stream
from curtainwall.runtime import SystemClock
from curtainwall.runtime.patience import Patience
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
        async with house(store(disk)) as h:
            lease = store(disk).leases.take(session_stream(session))
            assert lease is not None
            for word in ("one", "two"):
                with pytest.raises(Undecided, match="has not decided yet; this is kept and counts as soon as it does"):
                    await h.send(session, message(word), f"key {word}", patience=0.1)
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
        patience, mine, another = (
            Patience(lambda stream: 7 if stream.startswith("session:") else None),
            StreamId("session:a"),
            StreamId("b"),
        )
        with pytest.raises(Undecided, match="process 7 has not decided yet"):
            await patience.within(0.01, mine, never())
        async with asyncio.timeout(100):
            with pytest.raises(Undecided):
                await patience.within(1_000, StreamId("session:other"), never())
        assert await patience.within(1_000, mine, at_once()) == Outcome(1)
        waiting = asyncio.create_task(patience.within(1_000, mine, never()))
        assert not (await asyncio.wait({waiting}, timeout=0.7))[0], "it decides again, and is waited for"
        waiting.cancel()
        with pytest.raises(Undecided, match="whoever owns the session has not decided yet"):
            await patience.within(0.01, another, never())

    run(story())
