"""After a crash: what cannot go on is closed, what waits for an answer stays."""

from curtainwall.model import (
    SYSTEM,
    AnyEvent,
    CallDropped,
    CallFinished,
    CallLost,
    CallRequested,
    EndTurn,
    InterruptTurn,
    ModelFailed,
    ModelRequested,
    NotFound,
    Payload,
    RecordProgress,
    RepairSession,
    TurnEnded,
    TurnId,
    TurnStatus,
)
from curtainwall.session import CallStatus, Phase
from tests.support.covers import covers
from tests.support.given import (
    NOW,
    TURN,
    Situation,
    answer,
    asked,
    finished,
    given,
    like,
    proceed,
    push,
    read,
    ready,
    requested,
    turn_running,
    wish,
)

REPAIR = RepairSession(by=SYSTEM)
LOOK = wish("c1", read("/srv/own/a"), TURN)
PUSH = wish("c2", push("github.com/me/r"), TURN)
SAME = PUSH.again("c3")
PARKED = TurnEnded(at=NOW, turn=TURN, status=TurnStatus.WAITING, failure="the process ended")


def repaired(here: Situation, *expected: object) -> Situation:
    """Repair, expect these events, and that a second repair finds nothing to do."""
    here = here.when(REPAIR).then(*expected)
    here.when(REPAIR).then_nothing()
    return here


@covers("session.a-lost-call-is-never-run-again")
def test_a_permitted_call_is_lost_and_we_say_that_we_do_not_know() -> None:
    here = repaired(given(ready(), turn_running(), requested(LOOK)), CallLost(at=NOW, call=LOOK.call), PARKED)
    assert here.state.phase is Phase.WAITING
    here.when(finished(LOOK)).then_refused("there is no open call `c1`", NotFound)


@covers("session.asks-survive-a-crash")
def test_an_ask_stays_open_and_its_turn_waits() -> None:
    here = repaired(given(ready(), turn_running(), asked(PUSH)), PARKED)
    assert here.state.phase is Phase.WAITING
    here = here.happened(answer(PUSH))
    assert here.state.calls[PUSH.call].standing is CallStatus.ANSWERED


@covers("session.asks-survive-a-crash")
def test_an_answer_that_was_not_taken_up_stays_and_its_turn_waits() -> None:
    here = repaired(given(ready(), turn_running(), asked(PUSH), answer(PUSH)), PARKED)
    here.happened(proceed(PUSH))


def test_a_waiting_turn_stays_waiting() -> None:
    here = given(ready(), turn_running(), asked(PUSH), EndTurn(by=SYSTEM, turn=TURN, status=TurnStatus.WAITING))
    here.when(REPAIR).then_nothing()


@covers("session.a-turn-outlives-its-process")
def test_a_turn_that_worked_waits_to_be_taken_up_whatever_others_wait_for() -> None:
    other = wish("c2", push("github.com/me/r"), TurnId("t0"))
    here = repaired(given(ready(), turn_running(), asked(other)), PARKED)
    assert here.state.can_go_on


def test_a_turn_that_somebody_wanted_to_stop_is_over() -> None:
    ended = TurnEnded(at=NOW, turn=TURN, status=TurnStatus.INTERRUPTED, failure="the process ended")
    here = repaired(given(ready(), turn_running(), InterruptTurn(by=SYSTEM)), ended)
    assert here.state.phase is Phase.READY


def test_a_model_request_without_a_response_has_failed() -> None:
    request = ModelRequested(at=NOW, turn=TURN, request="r1", base=None, added=Payload(), model="demo")
    failed = ModelFailed(at=NOW, turn=TURN, request="r1", failure="the process ended before the response came")
    here = repaired(given(ready(), turn_running(), RecordProgress(by=SYSTEM, events=(request,))), failed, PARKED)
    assert here.state.requests == {}


def test_calls_that_had_joined_a_lost_one_are_dropped_and_nothing_waits_for_them() -> None:
    here = given(ready(), turn_running(), asked(PUSH), asked(SAME), answer(PUSH), proceed(PUSH))
    dropped = CallDropped(at=NOW, call=SAME.call, why="it had joined this call", shares=PUSH.call)
    here = repaired(here, CallLost(at=NOW, call=PUSH.call), dropped, PARKED)
    assert here.state.calls == {}


def test_calls_that_had_joined_an_answered_one_stay_to_share_its_outcome() -> None:
    here = given(ready(), turn_running(), asked(PUSH), asked(SAME), answer(PUSH))
    here = repaired(here, PARKED)
    assert list(here.state.calls) == [PUSH.call, SAME.call]
    here = here.happened(proceed(PUSH)).when(finished(PUSH)).then(like(CallFinished, call=PUSH.call), like(CallDropped, shares=PUSH.call))
    assert here.state.calls == {}


def test_calls_that_joined_an_open_ask_stay() -> None:
    here = repaired(given(ready(), turn_running(), asked(PUSH), asked(SAME)), PARKED)
    assert list(here.state.calls) == [PUSH.call, SAME.call]


def test_a_call_that_was_never_decided_is_dropped() -> None:
    torn: AnyEvent = CallRequested(at=NOW, call=LOOK.call, subject=LOOK.subject, turn=TURN)
    repaired(given(ready(), turn_running(), torn), CallDropped(at=NOW, call=LOOK.call, why="it was never decided"), PARKED)


def test_a_healthy_session_needs_no_repair() -> None:
    given(ready(), turn_running(), requested(LOOK), finished(LOOK), EndTurn(by=SYSTEM, turn=TURN, status=TurnStatus.DONE)).when(
        REPAIR
    ).then_nothing()
