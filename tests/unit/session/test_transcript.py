"""The conversation as people read it: nothing that was shown is lost, nothing is shown twice."""

from curtainwall.model import (
    SYSTEM,
    AgentSpoke,
    AnyEvent,
    CallRequested,
    MessageAccepted,
    MessageId,
    MessageWithdrawn,
    ModelResponded,
    Payload,
    TextStreamed,
    TurnEnded,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Usage,
)
from curtainwall.session import TranscriptMessage, TranscriptTurn, transcript
from tests.support.covers import covers
from tests.support.given import ANN, NOW, TURN, asked, given, read, ready, wish

ONE, TWO = MessageId("m1"), MessageId("m2")


def said(message: MessageId, text: str, role: str = "human", at: int = NOW) -> MessageAccepted:
    return MessageAccepted.model_validate({"at": at, "message": message, "text": text, "by": ANN, "role": role})


def piece(text: str, turn: TurnId = TURN) -> TextStreamed:
    return TextStreamed(at=NOW, turn=turn, text=text)


def spoke(text: str, turn: TurnId = TURN) -> AgentSpoke:
    return AgentSpoke(at=NOW, turn=turn, text=text)


def ended(status: TurnStatus, failure: str = "", at: int = NOW) -> TurnEnded:
    return TurnEnded(at=at, turn=TURN, status=status, failure=failure)


START = (said(ONE, "hello"), TurnStarted(at=NOW, turn=TURN, messages=(ONE,)))


def turn_of(*events: AnyEvent) -> TranscriptTurn:
    (turn,) = transcript([*ready(), *START, *events]).turns
    return turn


@covers("session.the-final-message-replaces-its-pieces")
def test_the_final_message_replaces_the_pieces_that_were_streamed() -> None:
    turn = turn_of(piece("Hel"), piece("lo"), spoke("Hello!"), ended(TurnStatus.DONE, at=NOW + 5))
    assert turn.text == "Hello!"
    assert (turn.started, turn.ended, turn.status) == (NOW, NOW + 5, TurnStatus.DONE)


@covers("session.shown-text-is-never-lost")
def test_what_was_shown_before_an_interrupt_stays() -> None:
    turn = turn_of(piece("Hel"), piece("lo"), ended(TurnStatus.INTERRUPTED, "stopped by `ann`"))
    assert (turn.text, turn.status, turn.failure) == ("Hello", TurnStatus.INTERRUPTED, "stopped by `ann`")


@covers("session.shown-text-is-never-lost")
def test_what_was_shown_of_a_later_message_stays_too() -> None:
    assert turn_of(piece("Look"), spoke("Looking."), piece("Fou"), piece("nd")).text == "Looking.\n\nFound"
    assert turn_of(piece("Look"), spoke("Looking."), piece("Fou"), spoke("Found it.")).text == "Looking.\n\nFound it."


def test_a_message_waits_for_its_turn() -> None:
    told = transcript([*ready(), *START, said(TWO, "and this")])
    assert told.queued == [TranscriptMessage(TWO, "and this", "ann", NOW, "human")]
    assert told.turns[0].asked == (TranscriptMessage(ONE, "hello", "ann", NOW, "human"),)


def test_a_message_that_was_taken_back_does_not_wait() -> None:
    assert transcript([*ready(), *START, said(TWO, "and this"), MessageWithdrawn(at=NOW, message=TWO, by=ANN)]).queued == []


def test_context_is_told_apart_from_what_people_said() -> None:
    told = transcript([said(ONE, "by the way", role="context")])
    assert told.context == [TranscriptMessage(ONE, "by the way", "ann", NOW, "context")]
    assert told.queued == []


def test_a_failed_turn_keeps_its_messages_and_its_failure() -> None:
    turn = turn_of(ended(TurnStatus.FAILED, "no network"))
    assert (turn.asked[0].text, turn.status, turn.failure) == ("hello", TurnStatus.FAILED, "no network")


def test_a_turn_that_resumed_has_not_ended() -> None:
    turn = turn_of(ended(TurnStatus.WAITING, "x"), TurnResumed(at=NOW, turn=TURN))
    assert (turn.ended, turn.status, turn.failure) == (None, None, "")
    assert turn_of(ended(TurnStatus.WAITING), TurnResumed(at=NOW, turn=TURN), ended(TurnStatus.DONE)).status is TurnStatus.DONE


def test_a_turn_counts_its_calls_and_its_usage() -> None:
    usage = Usage(input_tokens=3)
    call = CallRequested(at=NOW, call=wish("c1", read("/a")).call, subject=read("/a"), turn=TURN)
    response = ModelResponded(at=NOW, turn=TURN, request="r", raw=Payload(), normalised=Payload(), usage=usage)
    turn = turn_of(call, response, call.model_copy(update={"turn": None}))
    assert (turn.calls, turn.usage) == (1, [usage])


def test_what_belongs_to_no_turn_is_left_out() -> None:
    stray = TurnId("t9")
    response = ModelResponded(at=NOW, turn=stray, request="r", raw=Payload(), normalised=Payload(), usage=Usage())
    end = TurnEnded(at=NOW, turn=stray, status=TurnStatus.DONE)
    assert transcript([piece("a", stray), spoke("b", stray), response, end, TurnResumed(at=NOW, turn=stray)]).turns == []


def test_a_whole_session_reads_as_a_conversation() -> None:
    here = given(ready(), START, asked(wish("c1", read("/etc/a"), TURN)))
    assert [(turn.turn, turn.calls, turn.status) for turn in transcript(here.log).turns] == [(TURN, 1, None)]
    assert str(SYSTEM) == "curtainwall on runtime"
