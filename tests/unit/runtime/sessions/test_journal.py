"""An agent's work on its way into the log: what a model call used is not lost with its words."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.model import (
    SYSTEM,
    Live,
    MessageId,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Payload,
    Progress,
    SendMessage,
    SessionId,
    StartTurn,
    TryLater,
    TurnId,
    Usage,
)
from curtainwall.runtime import SessionJournal, SessionRegistry
from tests.support.covers import covers
from tests.support.houses import FailingStore, events, house, open_session, run, until

TURN, NONE = TurnId("t1"), Payload()
USED = Usage(input_tokens=1_000, output_tokens=200, dollars=0.5)


def responded(at: int) -> Progress:
    return ModelResponded(at=at, turn=TURN, request="r1", raw=NONE, normalised=NONE, usage=USED, stop_reason="end")


def failed(at: int) -> Progress:
    return ModelFailed(at=at, turn=TURN, request="r1", failure="cut off", usage=USED)


async def asking(h: SessionRegistry, workspace: Path) -> tuple[SessionId, SessionJournal]:
    """Return a session with an open request to a model."""
    session, journal = await open_session(h, workspace), SessionJournal(h)
    await h.send(session, SendMessage(by=SYSTEM, message=MessageId("m1"), text="hello"))
    await h.send(session, StartTurn(by=SYSTEM, turn=TURN))
    begun = ModelRequested(at=h.clock.now(), turn=TURN, request="r1", base=None, added=NONE, model="demo")
    await journal.record(session, (begun,))
    return session, journal


@covers("agents.usage-survives-a-full-disk")
@pytest.mark.parametrize(("end", "why"), [(responded, "the reply could not be kept: the disk is full"), (failed, "cut off")])
def test_what_a_model_call_used_is_written_as_soon_as_the_disk_is_well(tmp_path: Path, end: Callable[[int], Progress], why: str) -> None:
    async def story() -> None:
        failing = FailingStore()
        async with house(failing) as h:
            session, journal = await asking(h, tmp_path)
            failing.is_full = True
            with pytest.raises(TryLater, match="the disk is full"):
                await journal.record(session, (end(h.clock.now()),))
            failing.is_full = False
            await until(lambda: isinstance(events(h, session)[-1], ModelFailed))
            last = events(h, session)[-1]
            assert isinstance(last, ModelFailed)
            assert (last.request, last.failure, last.usage) == ("r1", why, USED)
            async with h.hold(session) as actor:
                assert (actor.state.spent.tokens, actor.state.requests) == (1_200, {})

    run(story())


async def first_heard(journal: SessionJournal, session: SessionId) -> str:
    """Return what somebody hears first who begins to listen now, while a piece of text is said."""
    async with journal.listen(session) as lives:
        journal.publish(session, Live(kind="text", text="a piece"))
        async for live in lives:
            return live.text
    raise AssertionError("nothing was heard")


@covers("matrix.tried-again")
@pytest.mark.parametrize("end", ["a reply", "a piece", None])
def test_whoever_begins_to_listen_hears_what_is_tried_again_for_as_long_as_it_is(tmp_path: Path, end: str | None) -> None:
    async def body() -> None:
        async with house(FailingStore()) as h:
            session, journal = await asking(h, tmp_path)
            journal.publish(session, Live(kind="again", text="first"))
            journal.publish(session, Live(kind="again", text="second"))
            if end == "a reply":
                await journal.record(session, (responded(h.clock.now()),))
            elif end == "a piece":
                journal.publish(session, Live(kind="text", text="it answers"))
            async with asyncio.timeout(10):
                assert await first_heard(journal, session) == ("second" if end is None else "a piece")

    run(body())
