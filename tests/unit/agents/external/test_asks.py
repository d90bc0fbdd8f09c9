"""The asks of an external agent: what waits for a human, what was granted meanwhile, and what was refused."""

from curtainwall.agents.external.history import LoggedAsks
from curtainwall.model import SYSTEM, AnyCommand, AnyEvent, ApprovalAsked, ApprovalId, EndTurn, TurnStatus
from tests.support.given import ANN, TURN, answer, asked, fetch, given, push, ready, requested, turn_running, wish

FETCH = wish("c1", fetch("a.example"), TURN)
PUSH = wish("c2", push("github.com/me/r"), TURN)
SAME = PUSH.again("c3")
PARKS = EndTurn(by=SYSTEM, turn=TURN, status=TurnStatus.WAITING, waits_for=(FETCH.call, PUSH.call))


def asks_after(*steps: AnyCommand, more: tuple[AnyEvent, ...] = ()) -> LoggedAsks:
    asks = LoggedAsks()
    for event in (*given(ready(), turn_running(), *steps).log, *more):
        asks.take(event)
    return asks


def test_an_answer_makes_a_call_and_those_that_joined_it_granted() -> None:
    asks = asks_after(asked(FETCH), asked(PUSH), requested(SAME), PARKS)
    assert (asks.open_in(TURN), asks.granted_in(TURN)) == ((FETCH.call, PUSH.call, SAME.call), ())
    asks = asks_after(asked(FETCH), asked(PUSH), requested(SAME), PARKS, answer(PUSH))
    assert (asks.open_in(TURN), asks.granted_in(TURN)) == ((FETCH.call,), (PUSH.call, SAME.call))


def test_what_is_refused_while_a_turn_waits_is_told_to_the_agent() -> None:
    asks = asks_after(asked(FETCH), asked(PUSH), PARKS, answer(PUSH, granted=False, by=ANN, reason="not today"))
    assert asks.refusals == ["`git.push` was refused: a human denied it: not today"]
    assert asks.open_in(TURN) == (FETCH.call,)


def test_a_call_that_is_asked_about_anew_waits_again() -> None:
    log = given(ready(), turn_running(), asked(PUSH), answer(PUSH)).log
    first = next(event for event in log if isinstance(event, ApprovalAsked))
    asks = asks_after(asked(PUSH), answer(PUSH), more=(first.model_copy(update={"approval": ApprovalId("again")}),))
    assert (asks.open_in(TURN), asks.granted_in(TURN)) == ((PUSH.call,), ())
