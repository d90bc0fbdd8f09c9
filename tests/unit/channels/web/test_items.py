"""The conversation on a page, made from events alone."""

from typing import Literal

from curtainwall.channels.web.render.items import MessageItem, NoteItem, PageConversation
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    BudgetExhausted,
    BudgetKind,
    CallId,
    CallLost,
    CallRequested,
    HeldFile,
    MessageAccepted,
    MessageId,
    ModelFailed,
    Recorded,
    SessionId,
    TurnEnded,
    TurnId,
    TurnStarted,
    TurnStatus,
    held_noted,
    session_stream,
)
from tests.support.given import ANN, read

TURN = TurnId("t1")


def taken(*events: AnyEvent) -> PageConversation:
    told = PageConversation()
    for seq, event in enumerate(events, 1):
        told.take(Recorded(session_stream(SessionId("s1")), seq, event))
    return told


def spoke(text: str) -> AgentSpoke:
    return AgentSpoke(at=1, turn=TURN, text=text)


def said(message: str, text: str = "go", role: Literal["human", "context"] = "human") -> MessageAccepted:
    return MessageAccepted(at=1, message=MessageId(message), text=text, by=ANN, role=role)


def notes(*events: AnyEvent) -> list[tuple[str, str]]:
    told = taken(*events)
    return [(item.tone, item.text) for item in told.items.values() if isinstance(item, NoteItem)]


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


def test_older_things_go_and_what_may_still_change_stays() -> None:
    call = CallRequested(at=1, call=CallId("c1"), subject=read("/etc/hosts"), turn=TURN)
    told = taken(said("taken"), TurnStarted(at=1, turn=TURN, messages=(MessageId("taken"),)), said("waits"), call, *map(spoke, "abcd"))
    told.shed(2, 1_000)
    assert list(told.items) == ["said-waits", "call-c1", "spoke-6", "spoke-7"]
    assert told.left_out == 3
    lost = told.take(Recorded(session_stream(SessionId("s1")), 9, CallLost(at=2, call=CallId("c1"))))
    assert lost is told.items["call-c1"]


def test_whoever_has_not_seen_what_is_gone_is_told_so() -> None:
    told = taken(*map(spoke, "abcd"))
    told.shed(2, 1_000)
    assert told.changed_after(1) is None
    assert told.changed_after(2) == list(told.items.values())
    assert told.changed_after(4) == []


def test_few_long_things_go_as_well() -> None:
    told = taken(*(spoke(letter * 400) for letter in "abcd"))
    told.shed(100, 1_000)
    assert list(told.items) == ["spoke-2", "spoke-3"]


def test_a_long_argument_counts_however_deep_it_is() -> None:
    made = read("/etc/hosts").model_copy(update={"raw": {"edits": [{"new": "x" * 900}]}})
    call = CallRequested(at=1, call=CallId("c1"), subject=made, turn=TURN)
    told = taken(call, CallLost(at=2, call=CallId("c1")), spoke("a" * 200))
    told.shed(100, 1_000)
    assert list(told.items) == ["spoke-0"]


def test_what_is_put_beside_the_conversation_waits_for_no_turn() -> None:
    (item,) = taken(said("m1", role="context")).items.values()
    assert isinstance(item, MessageItem)
    assert item.standing == "taken"
