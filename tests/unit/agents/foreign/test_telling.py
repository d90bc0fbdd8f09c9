"""The words of a turn: how many of them a foreign agent has, however it tells them, and when they are in the log."""

import asyncio
from collections.abc import Sequence

import pytest
from pydantic import JsonValue

from curtainwall.agents.foreign import SaidTooMuch, Telling
from curtainwall.facts import Masker
from curtainwall.model import AgentSpoke, AnyEvent, Live, Payload, Progress, SessionId, TextStreamed, TurnAt, TurnId
from curtainwall.runtime import SystemClock

LONG = "word " * 300_000


class Kept:
    """A journal that counts the letters of whole messages, and keeps the pieces of those that are still coming."""

    def __init__(self) -> None:
        self.letters = 0
        self.pieces: list[str] = []

    async def record(self, session: SessionId, events: Sequence[Progress]) -> Sequence[AnyEvent]:
        del session
        self.letters += sum(len(event.text) for event in events if isinstance(event, AgentSpoke))
        self.pieces += [event.text for event in events if isinstance(event, TextStreamed)]
        return ()

    async def keep(self, value: JsonValue) -> Payload:
        raise NotImplementedError

    def load(self, payload: Payload) -> JsonValue:
        raise NotImplementedError

    def say(self, session: SessionId, live: Live) -> None:
        del session, live


async def speak(telling: Telling, times: int, piece: str, whole: str) -> None:
    for _ in range(times):
        await telling.piece(piece)
        await telling.whole(whole)


def test_a_message_that_is_longer_than_its_pieces_were_counts_as_well() -> None:
    async def story() -> None:
        kept = Kept()
        telling = Telling(TurnAt(session=SessionId("s"), turn=TurnId("t")), kept, SystemClock(), Masker(b"key"))
        with pytest.raises(SaidTooMuch):
            await speak(telling, 10, "a", LONG)
        assert kept.letters <= 4_000_000

    asyncio.run(story())


def test_what_came_in_pieces_counts_once() -> None:
    async def story() -> None:
        kept = Kept()
        telling = Telling(TurnAt(session=SessionId("s"), turn=TurnId("t")), kept, SystemClock(), Masker(b"key"))
        await speak(telling, 2, LONG, LONG)
        assert kept.letters == 2 * len(LONG)

    asyncio.run(story())


def test_how_each_message_begins_is_in_the_log_at_once() -> None:
    async def story() -> None:
        kept = Kept()
        telling = Telling(TurnAt(session=SessionId("s"), turn=TurnId("t")), kept, SystemClock(), Masker(b"key"))
        await telling.piece("I begin with a sentence.\n")
        assert kept.pieces == ["I begin with a sentence.\n"]
        await telling.piece("And there is more.\n")
        await telling.whole("I begin with a sentence.\nAnd there is more.\n")
        assert len(kept.pieces) == 1
        await telling.piece("Once more.\n")
        assert kept.pieces[1:] == ["Once more.\n"]

    asyncio.run(story())
