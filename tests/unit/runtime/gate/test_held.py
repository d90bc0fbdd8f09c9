"""Held answers and a disk that fails: an answer that could not be asked about is brought to the gate again, though nothing else happens."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from curtainwall.model import (
    Answer,
    CallId,
    CallRequest,
    Effect,
    MessageId,
    Peer,
    PeerAnswer,
    PeerStatus,
    Presence,
    Save,
    SessionId,
    ToolResult,
    TryLater,
    Verdict,
    session_stream,
)
from curtainwall.runtime.gate.held import HeldAnswers
from curtainwall.session import SessionState
from tests.support.houses import FailingStore, house, open_session, run
from tests.support.waiting import eventually


@dataclass
class Full:
    """A gate that can write nothing down the first time."""

    asked: list[CallRequest] = field(default_factory=list[CallRequest])

    async def request(
        self,
        session: SessionId,
        request: CallRequest,
        *,
        wait: bool = True,
        save: Save | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        self.asked.append(request)
        if len(self.asked) == 1:
            raise TryLater("nothing was written: the disk is full")
        verdict = Verdict(effect=Effect.ALLOW, because=(), reason="")
        return Answer(call=CallId("c1"), verdict=verdict, result=ToolResult(ok=True, value="it left"))

    async def resume(self, session: SessionId, call: CallId) -> Answer:
        raise NotImplementedError

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        raise NotImplementedError


@dataclass
class Slow(Full):
    """A gate that can write nothing down the first time, and then waits for a human."""

    left: int = 0

    async def request(
        self,
        session: SessionId,
        request: CallRequest,
        *,
        wait: bool = True,
        save: Save | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        await super().request(session, request, wait=wait, save=save, presence=presence)
        try:
            return await asyncio.Future()
        except asyncio.CancelledError:
            assert presence is not None
            self.left += presence.has_left
            raise


def held_answer() -> SessionState:
    message = MessageId("m1")
    return SessionState(
        owed={message: PeerAnswer(message=message, status=PeerStatus.DONE, text="it is blue")},
        peers={message: Peer(session=SessionId("s2"), team="backend", path=())},
    )


def test_an_answer_of_a_session_that_is_left_at_once_is_brought_to_the_gate_when_somebody_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(FailingStore()) as here:
            session, gate = await open_session(here, tmp_path), Full()
            held = HeldAnswers(here, gate)
            held.look_at(session, held_answer())
            await held.leave(session)
            assert gate.asked == [], "it had not begun"
            held.look_at(session, held_answer())
            await eventually(lambda: len(gate.asked) == 1)
            await held.leave(session)

    run(story())


def test_an_answer_that_could_not_be_asked_about_has_its_session_looked_at_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(FailingStore()) as here:
            session, gate = await open_session(here, tmp_path), Full()
            held, state = HeldAnswers(here, gate), held_answer()
            with here.wakes.waiter(session_stream(session)) as woken:
                held.look_at(session, state)
                await eventually(lambda: len(gate.asked) == 1)
                held.look_at(session, state)
                await eventually(woken.is_set)
                assert len(gate.asked) == 1, "it is with the gate once at a time"
                held.look_at(session, state)
                await eventually(lambda: len(gate.asked) == 2)

    run(story())


def test_an_answer_that_is_brought_to_the_gate_again_is_brought_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(FailingStore()) as here:
            session, gate = await open_session(here, tmp_path), Slow()
            held, state = HeldAnswers(here, gate), held_answer()

            async def attend() -> None:
                with here.wakes.waiter(session_stream(session)) as woken:
                    while True:
                        held.look_at(session, state)
                        await woken.wait()
                        woken.clear()

            attending = asyncio.create_task(attend())
            await eventually(lambda: len(gate.asked) == 2)
            for _ in range(10):
                here.wakes.wake(frozenset({session_stream(session)}))
                await asyncio.sleep(0)
            assert len(gate.asked) == 2
            attending.cancel()
            await held.leave(session)
            assert gate.left == 1

    run(story())
