"""Who waits for whom: a team that has its answer, or has gone on, waits for nobody, whatever it waits for next."""

from collections.abc import Sequence
from typing import cast

import pytest

from curtainwall.model import (
    AnyEvent,
    CallFinished,
    CallId,
    CallPermitted,
    CallRequested,
    Digest,
    Effect,
    Feed,
    MessageId,
    Payload,
    Peer,
    PeerAnswer,
    PeerAnswerTaken,
    PeerMessageSent,
    PeerStatus,
    PermitId,
    Recorded,
    SessionId,
    StreamId,
    TurnEnded,
    TurnId,
    TurnStatus,
    Verdict,
    session_stream,
)
from curtainwall.teams.chains import Chain
from tests.support.given import NOW, read

FIRST, DATA = SessionId("first"), SessionId("data")
TURN, PERMIT, ASKED = TurnId("t1"), PermitId("p1"), MessageId("m1")


class Logs:
    """The logs of sessions, as far as a chain reads them."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        told = self.events if stream == session_stream(FIRST) else []
        return [Recorded(stream, seq, event) for seq, event in enumerate(told, 1) if seq > after][:limit]


def begun(call: str, tool: str) -> tuple[AnyEvent, ...]:
    subject = read("/x").model_copy(update={"tool": tool})
    allow = Verdict(effect=Effect.ALLOW, because=(), reason="")
    return (
        CallRequested(at=NOW, call=CallId(call), subject=subject, turn=TURN),
        CallPermitted(at=NOW, call=CallId(call), permit=PERMIT, digest=Digest("d"), verdict=allow),
    )


def done(call: str) -> AnyEvent:
    return CallFinished(at=NOW, call=CallId(call), permit=PERMIT, ok=True, result=Payload(inline="x"))


ANSWERED = PeerAnswerTaken(at=NOW, team="data", answer=PeerAnswer(message=ASKED, status=PeerStatus.DONE, text="here"))
ENDED = TurnEnded(at=NOW, turn=TURN, status=TurnStatus.DONE)


@pytest.mark.parametrize(
    "since",
    [
        (done("c1"),),
        (ANSWERED, done("c1"), *begun("c2", "teams.ask")),
        (done("c1"), ENDED, *begun("c2", "teams.ask")),
        (done("c1"), *begun("c2", "fetch.get")),
    ],
    ids=["the call is over", "the answer was taken", "the turn is over", "something else runs"],
)
def test_whoever_waits_no_longer_is_in_no_chain(since: tuple[AnyEvent, ...]) -> None:
    logs = Logs()
    peer = Peer(session=FIRST, team="backend", path=())
    sent = PeerMessageSent(at=NOW, message=ASKED, to=DATA, team="data", text="?", peer=peer)
    logs.events += [*begun("c1", "teams.ask"), sent]
    chain = Chain(cast("Feed", logs), "backend", FIRST)
    assert chain.sessions() == (FIRST, DATA)
    logs.events += since
    assert chain.sessions() == (FIRST,)
