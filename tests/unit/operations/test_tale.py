"""What events tell someone who only listens: the same as the session itself would say."""

from curtainwall.model import (
    AnswerApproval,
    BudgetKind,
    InterruptTurn,
    Limits,
    MessageId,
    RaiseBudget,
    SendMessage,
    TurnStatus,
    WithdrawMessage,
)
from curtainwall.operations.activity import Change, SessionActivity, changes_of
from tests.support.covers import covers
from tests.support.desks import Hand, MemoryDesk
from tests.support.given import ANN, PROJECT, SESSION, delete, fetch, move, push, read, ready, run, write


def tale_of(desk: MemoryDesk) -> SessionActivity:
    tale = SessionActivity()
    for event in desk.logs[SESSION]:
        tale.take(event)
    return tale


def started(desk: MemoryDesk | None = None) -> tuple[MemoryDesk, Hand]:
    desk = desk or MemoryDesk(*ready(PROJECT))
    desk.do(SendMessage(by=ANN, message=MessageId("m1"), text="go"))
    hand = Hand(desk)
    hand.start()
    return desk, hand


def test_a_turn_works_waits_and_ends() -> None:
    desk, hand = started()
    assert tale_of(desk).works
    wanted = hand.want("c1", fetch("a.example"))
    assert [ask.subject.tool for ask in tale_of(desk).asks.values()] == ["fetch.get"]
    hand.end(TurnStatus.WAITING, waits_for=[wanted])
    assert not tale_of(desk).works
    assert tale_of(desk).is_parked
    desk.do(AnswerApproval(by=ANN, approval=next(iter(desk.state().approvals)), granted=True))
    assert not tale_of(desk).is_parked
    assert tale_of(desk).asks == {}
    hand.resume()
    hand.go_on(wanted)
    hand.end()
    assert tale_of(desk).turn is None


@covers("oneshot.parked")
def test_a_turn_that_can_go_on_is_not_parked_though_another_ask_is_open() -> None:
    desk, hand = started()
    first, second = hand.want("c1", fetch("a.example")), hand.want("c2", fetch("b.example"))
    hand.end(TurnStatus.WAITING, waits_for=[first, second])
    assert (tale_of(desk).is_parked, desk.state().can_go_on) == (True, False)
    desk.do(AnswerApproval(by=ANN, approval=list(desk.state().approvals)[1], granted=False))
    assert (tale_of(desk).is_parked, desk.state().can_go_on) == (False, True)
    assert len(tale_of(desk).asks) == 1


def test_a_used_up_budget_parks_until_it_is_raised() -> None:
    desk, hand = started(MemoryDesk(*ready(PROJECT, limits=Limits(tokens=10))))
    hand.use(20)
    hand.end(TurnStatus.WAITING)
    assert tale_of(desk).is_parked
    desk.do(RaiseBudget(by=ANN, kind=BudgetKind.TOKENS, limit=100))
    assert not tale_of(desk).is_parked


def test_messages_queue_while_a_turn_works_and_can_be_taken_back() -> None:
    desk, _ = started()
    desk.do(SendMessage(by=ANN, message=MessageId("m2"), text="and this"))
    assert [it.text for it in tale_of(desk).queue.values()] == ["and this"]
    desk.do(WithdrawMessage(by=ANN, message=MessageId("m2")))
    assert tale_of(desk).queue == {}


def test_an_interrupt_is_seen_before_the_turn_has_ended() -> None:
    desk, hand = started()
    desk.do(InterruptTurn(by=ANN))
    assert tale_of(desk).interrupting
    hand.end(TurnStatus.INTERRUPTED)
    assert not tale_of(desk).interrupting


@covers("terminal.changed-files")
def test_the_files_of_a_turn_are_those_whose_calls_went_well() -> None:
    desk = MemoryDesk()
    _, hand = started(desk)
    for call, what in (("c1", write("/srv/own/a")), ("c2", read("/srv/own/b")), ("c3", write("/srv/own/a")), ("c4", delete("/srv/own/c"))):
        hand.finish(hand.want(call, what))
    hand.want("c5", write("/srv/own/never-finished"))
    words = [change.words("/srv/own") for change in tale_of(desk).changes]
    assert words == ["wrote a", "deleted c"]


def test_changes_are_told_by_what_a_call_does_to_files() -> None:
    assert changes_of(move("/a", "/b")) == (Change("moved", "/a", "/b"),)
    assert Change("moved", "/w/a", "/elsewhere").words("/w") == "moved a to /elsewhere"
    assert changes_of(push("github.com/a/b")) == ()
    assert changes_of(run("rm x")) == ()
    assert changes_of(read("/a")) == ()


def test_what_is_put_beside_the_conversation_waits_in_no_queue() -> None:
    desk = MemoryDesk(*ready(PROJECT))
    desk.do(SendMessage(by=ANN, message=MessageId("m1"), text="by the way", role="context"))
    assert tale_of(desk).queue == {}
