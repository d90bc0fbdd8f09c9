"""The conversation on a page, made from events alone."""

from curtainwall.channels.web.items import Conversation, Note
from curtainwall.model import (
    AnyEvent,
    BudgetExhausted,
    BudgetKind,
    HeldFile,
    ModelFailed,
    Recorded,
    SessionId,
    TurnEnded,
    TurnId,
    TurnStatus,
    held_noted,
    session_stream,
)

TURN = TurnId("t1")


def notes(*events: AnyEvent) -> list[tuple[str, str]]:
    told = Conversation()
    for seq, event in enumerate(events, 1):
        told.take(Recorded(session_stream(SessionId("s1")), seq, event))
    return [(item.tone, item.text) for item in told.items.values() if isinstance(item, Note)]


def test_what_a_turn_failed_of_is_told_once() -> None:
    lost = "the provider cannot be reached"
    failed = ModelFailed(at=1, turn=TURN, request="r1", failure=lost)
    assert notes(failed, TurnEnded(at=2, turn=TURN, status=TurnStatus.FAILED, failure=lost)) == [("bad", f"the turn failed: {lost}")]


def test_a_page_names_no_words_that_it_does_not_take() -> None:
    ((_, told),) = notes(BudgetExhausted(at=1, kind=BudgetKind.STEPS, used=3, limit=3))
    assert told == "the budget of steps is used up (3 of 3); raise it to go on"


def test_a_page_tells_what_was_set_aside_while_an_agent_worked() -> None:
    ((tone, told),) = notes(held_noted([HeldFile(path="/p/.envrc", aside="/p/.envrc.held")], 1))
    assert tone == "warn"
    assert "`/p/.envrc`, now `.envrc.held`" in told
    assert "`curtainwall sessions held`" in told
