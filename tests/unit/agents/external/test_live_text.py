"""The words of a turn: how many of them a foreign agent has, however it tells them, and when they are in the log."""

import asyncio
from collections.abc import Sequence

import pytest
from pydantic import JsonValue

from curtainwall.agents.external import LiveText, OwnToolUse, SaidTooMuch
from curtainwall.facts import Masker
from curtainwall.model import AgentSpoke, AnyEvent, Live, Payload, Progress, SessionId, TextStreamed, ToolUsesReported, TurnAt, TurnId
from curtainwall.runtime import SystemClock
from tests.support.covers import covers
from tests.support.houses import FakeClock

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

    def publish(self, session: SessionId, live: Live) -> None:
        del session, live


async def speak(telling: LiveText, times: int, piece: str, whole: str) -> None:
    for _ in range(times):
        await telling.piece(piece)
        await telling.whole(whole)


def test_a_message_that_is_longer_than_its_pieces_were_counts_as_well() -> None:
    async def story() -> None:
        kept = Kept()
        telling = LiveText(TurnAt(session=SessionId("s"), turn=TurnId("t")), kept, SystemClock(), Masker(b"key"))
        with pytest.raises(SaidTooMuch):
            await speak(telling, 10, "a", LONG)
        assert kept.letters <= 4_000_000

    asyncio.run(story())


def test_what_came_in_pieces_counts_once() -> None:
    async def story() -> None:
        kept = Kept()
        telling = LiveText(TurnAt(session=SessionId("s"), turn=TurnId("t")), kept, SystemClock(), Masker(b"key"))
        await speak(telling, 2, LONG, LONG)
        assert kept.letters == 2 * len(LONG)

    asyncio.run(story())


def test_how_each_message_begins_is_in_the_log_at_once() -> None:
    async def story() -> None:
        kept = Kept()
        telling = LiveText(TurnAt(session=SessionId("s"), turn=TurnId("t")), kept, SystemClock(), Masker(b"key"))
        await telling.piece("I begin with a sentence.\n")
        assert kept.pieces == ["I begin with a sentence.\n"]
        await telling.piece("And there is more.\n")
        await telling.whole("I begin with a sentence.\nAnd there is more.\n")
        assert len(kept.pieces) == 1
        await telling.piece("Once more.\n")
        assert kept.pieces[1:] == ["Once more.\n"]

    asyncio.run(story())


def reported(events: Sequence[Progress]) -> list[ToolUsesReported]:
    return [event for event in events if isinstance(event, ToolUsesReported)]


@covers("brokered.own-tools-reported")
def test_what_an_agent_says_of_its_tools_is_masked_cut_and_bounded_in_one_turn() -> None:
    telling = LiveText(
        TurnAt(session=SessionId("s"), turn=TurnId("t")), Kept(), SystemClock(), Masker(b"key", {"token": "the-known-secret"})
    )
    long: dict[str, JsonValue] = {
        "command": "the-known-secret",
        "password": "hunter2hunter2",
        "content": "word " * 100_000 + "the-known-secret",
    }
    (first,) = reported(telling.used(OwnToolUse("Bash" * 100, long)))
    (use,) = first.uses
    assert (len(use.tool), len(use.arguments)) == (100, 2_000)
    assert "the-known-secret" not in use.arguments
    assert "hunter2hunter2" not in use.arguments
    for _ in range(999):
        telling.used(OwnToolUse("Read", {"half": "\ud800"}))
    assert telling.used(OwnToolUse("Read")) == ()
    (rest,) = reported(telling.unlisted_uses())
    assert (rest.uses, rest.more) == ((), 701)
    assert telling.unlisted_uses() == (), "it is told once"


@covers("brokered.own-tools-reported")
def test_a_secret_that_is_cut_off_is_not_shown_in_part() -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4
    telling = LiveText(TurnAt(session=SessionId("s"), turn=TurnId("t")), Kept(), SystemClock(), Masker(b"key"))
    # Many masks make a long text short, so that its end comes into sight.
    for size in range(32_700, 32_800, 7):
        many = (f"{secret} " * 1_000)[:size]
        (event,) = reported(telling.used(OwnToolUse("Bash", f"{many}{secret} {'x ' * 9_000}")))
        assert "ghp_a1" not in event.uses[0].arguments


@pytest.mark.parametrize("jump", [-86_400_000, 86_400_000])
def test_text_is_kept_every_second_wherever_the_clock_is_set(jump: int) -> None:
    async def story() -> None:
        kept, clock = Kept(), FakeClock()
        telling = LiveText(TurnAt(session=SessionId("s"), turn=TurnId("t")), kept, clock, Masker(b"key"))
        await telling.piece("begun long ago ")
        clock.jump(jump)
        await telling.piece("and then said more ")
        assert len(kept.pieces) == 1
        clock.advance(2_000)
        await telling.piece("and more than that ")
        assert len(kept.pieces) == 2

    asyncio.run(story())
