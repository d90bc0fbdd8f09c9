"""Held answers and a disk that fails: an answer that could not be asked about is brought to the gate again, though nothing else happens."""

from dataclasses import dataclass, field
from pathlib import Path

from curtainwall.model import (
    Answer,
    Ask,
    CallId,
    Effect,
    MessageId,
    Peer,
    PeerAnswer,
    PeerStatus,
    Save,
    SessionId,
    ToolResult,
    TryLater,
    Verdict,
    session_stream,
)
from curtainwall.runtime.held import HeldAnswers
from curtainwall.session import SessionState
from tests.support.houses import FailingStore, house, open_session, run
from tests.support.waiting import eventually


@dataclass
class Full:
    """A gate that can write nothing down the first time."""

    asked: list[Ask] = field(default_factory=list[Ask])

    async def request(self, session: SessionId, ask: Ask, *, wait: bool = True, save: Save | None = None) -> Answer:
        self.asked.append(ask)
        if len(self.asked) == 1:
            raise TryLater("nothing was written: the disk is full")
        verdict = Verdict(effect=Effect.ALLOW, because=(), reason="")
        return Answer(call=CallId("c1"), verdict=verdict, result=ToolResult(ok=True, value="it left"))

    async def go_on(self, session: SessionId, call: CallId) -> Answer:
        raise NotImplementedError

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        raise NotImplementedError


def test_an_answer_that_could_not_be_asked_about_has_its_session_looked_at_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(FailingStore()) as here:
            session, gate = await open_session(here, tmp_path), Full()
            held, message = HeldAnswers(here, gate), MessageId("m1")
            state = SessionState(
                owed={message: PeerAnswer(message=message, status=PeerStatus.DONE, text="it is blue")},
                peers={message: Peer(session=SessionId("s2"), team="backend", path=())},
            )
            with here.wakes.waiter(session_stream(session)) as woken:
                held.look_at(session, state)
                await eventually(lambda: len(gate.asked) == 1)
                held.look_at(session, state)
                await eventually(woken.is_set)
                assert len(gate.asked) == 1, "it is with the gate once at a time"
                held.look_at(session, state)
                await eventually(lambda: len(gate.asked) == 2)

    run(story())
