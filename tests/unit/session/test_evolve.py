"""One event further: totals, tolerance for what is told twice, and a damaged log."""

import time
from collections.abc import Iterator

import pytest

from curtainwall.model import (
    SYSTEM,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    Broken,
    CallDropped,
    CallFinished,
    CallId,
    CallPermitted,
    CallRequested,
    ContextMeasured,
    Digest,
    Effect,
    ExtensionNoted,
    HistoryCompacted,
    LabelsAdded,
    MessageAccepted,
    MessageId,
    MessageWithdrawn,
    Payload,
    Peer,
    PeerAnswer,
    PeerAnswered,
    PeerAnswerTaken,
    PeerMessageSent,
    PeerStatus,
    PermitId,
    RecordProgress,
    Route,
    RouteAdded,
    RouteRemoved,
    RouteSet,
    SessionDeleted,
    TurnId,
    TurnStarted,
    Verdict,
)
from curtainwall.session import SessionState, apply, evolve, fold
from tests.support.covers import covers
from tests.support.given import ANN, NOW, SESSION, asked, given, push, read, ready, requested, source, turn_running, wish

PUSH = wish("c1", push("github.com/me/r"))
LOST = CallId("lost")


def test_messages_wait_in_their_order_however_many_are_folded_at_once() -> None:
    def message(name: str) -> MessageAccepted:
        return MessageAccepted(at=NOW, message=MessageId(name), text=name, by=ANN)

    turn = TurnStarted(at=NOW, turn=TurnId("t"), messages=(MessageId("a"),))
    log = [*ready(), message("a"), message("b"), turn, message("c"), MessageWithdrawn(at=NOW, message=MessageId("b"), by=ANN), message("d")]
    one_by_one = SessionState()
    for event in log:
        one_by_one = evolve(one_by_one, event)
    assert tuple(fold(log).queue) == tuple(one_by_one.queue) == ("c", "d")


def test_evolving_leaves_the_state_before_as_it_was() -> None:
    before = given(ready(), turn_running(), asked(PUSH)).state
    kept = before.copy()
    after = evolve(before, ApprovalAnswered(at=NOW, approval=PUSH.approval, granted=True, by=ANN))
    assert before == kept
    assert after != before


def test_a_copy_and_its_original_go_on_without_each_other() -> None:
    log = [*given(ready(), turn_running(), asked(PUSH)).log, *_joined(3), *_team_talk(3)]
    for cut in range(len(log) + 1):
        one = fold(log[:cut])
        two = one.copy()
        for event in log[cut:]:
            apply(one, event)
        assert two == fold(log[:cut])
        three = one.copy()
        for event in log[cut:]:
            apply(two, event)
        assert one == two == three == fold(log)


@covers("session.folding-is-linear")
@pytest.mark.parametrize("what", ["queued", "teams", "joined", "called", "sent"])
def test_an_event_costs_the_same_however_much_is_open(what: str) -> None:
    logs = {"queued": _queued, "teams": _team_talk, "joined": _joined, "called": _called, "sent": _sent}
    few, many = ([*ready(), *logs[what](count)] for count in (500, 5_000))
    assert _cost(many) < 4 * _cost(few)


def _cost(log: list[AnyEvent]) -> float:
    """Return the processor time that one event takes, the least of several tries."""

    def once() -> float:
        began = time.process_time()
        fold(log)
        return (time.process_time() - began) / len(log)

    return min(once() for _ in range(3))


def _queued(count: int) -> Iterator[AnyEvent]:
    names = [MessageId(f"m{number}") for number in range(count)]
    yield from (MessageAccepted(at=NOW, message=name, text="", by=ANN) for name in names)
    yield from (TurnStarted(at=NOW, turn=TurnId(f"t-{name}"), messages=(name,)) for name in names)


def _team_talk(count: int) -> Iterator[AnyEvent]:
    peer = Peer(session=SESSION, team="docs", path=("docs",))
    names = [MessageId(f"m{number}") for number in range(count)]
    yield from (MessageAccepted(at=NOW, message=name, text="", by=ANN, peer=peer, expires=NOW) for name in names)
    yield from (PeerAnswered(at=NOW, peer=peer, answer=PeerAnswer(message=name, status=PeerStatus.EXPIRED, text="")) for name in names)


def _joined(count: int) -> Iterator[AnyEvent]:
    first, approval = CallId("first"), ApprovalId("all")
    names = [CallId(f"j{number}") for number in range(count)]
    yield CallRequested(at=NOW, call=first, subject=PUSH.subject)
    yield ApprovalAsked(at=NOW, approval=approval, call=first, digest=PUSH.subject.digest, covers=(), shown="", policy=Digest(""))
    for name in names:
        yield CallRequested(at=NOW, call=name, subject=PUSH.subject)
        yield ApprovalJoined(at=NOW, approval=approval, call=name)
    yield from (CallDropped(at=NOW, call=name, why="") for name in names)


def _called(count: int) -> Iterator[AnyEvent]:
    names = [CallId(f"c-{number}") for number in range(count)]
    subject = read("/srv/own/a")
    for name in names:
        yield CallRequested(at=NOW, call=name, subject=subject)
        yield ApprovalAsked(
            at=NOW, approval=ApprovalId(f"a-{name}"), call=name, digest=subject.digest, covers=(), shown="", policy=Digest("")
        )
    for name in names:
        yield CallDropped(at=NOW, call=name, why="")
        yield ApprovalWithdrawn(at=NOW, approval=ApprovalId(f"a-{name}"), why="")


def _sent(count: int) -> Iterator[AnyEvent]:
    peer = Peer(session=SESSION, team="docs", path=("docs",))
    names = [MessageId(f"m{number}") for number in range(count)]
    yield from (PeerMessageSent(at=NOW, message=name, to=SESSION, team="code", text="", peer=peer) for name in names)
    answers = (PeerAnswer(message=name, status=PeerStatus.DONE, text="") for name in names)
    yield from (PeerAnswerTaken(at=NOW, team="code", answer=answer) for answer in answers)


def test_folding_goes_on_from_a_state() -> None:
    log = given(ready(), turn_running(), asked(PUSH)).log
    for cut in range(len(log) + 1):
        assert fold(log[cut:], fold(log[:cut])) == fold(log)


def test_totals_count() -> None:
    totals = given(ready(), turn_running(), asked(PUSH), requested(wish("c2", read("/srv/own/a")))).state.totals
    assert (totals.events, totals.turns, totals.messages, totals.calls, totals.asks, totals.denials) == (8, 1, 1, 2, 1, 0)


def test_how_full_the_context_is_is_known() -> None:
    progress = RecordProgress(by=SYSTEM, events=(ContextMeasured(at=NOW, used=3, size=9, measured=True),))
    state = given(ready(), turn_running(), progress).state
    assert (state.context_used, state.context_size, state.context_measured) == (3, 9, True)


@pytest.mark.parametrize(
    "event",
    [
        ExtensionNoted(at=NOW, extension="x", data={"a": [1]}),
        HistoryCompacted(at=NOW, trigger="asked", before=9, after=3, upto=2, summary=Payload(inline="short")),
        SessionDeleted(at=NOW, session=SESSION, name="a", entries=1, head="", by=ANN),
        RouteSet(at=NOW, route=Route(channel="web", reference="ann"), session=SESSION, by=ANN),
    ],
    ids=lambda event: type(event).__name__,
)
def test_some_events_only_count(event: AnyEvent) -> None:
    before = given(ready()).state
    after = evolve(before, event)
    assert after.totals.events == before.totals.events + 1
    after.totals.events -= 1
    assert after == before


def test_a_route_told_twice_is_one_route() -> None:
    route = Route(channel="matrix", reference="!room")
    added, removed = RouteAdded(at=NOW, route=route, by=ANN), RouteRemoved(at=NOW, route=route, by=ANN)
    assert given(ready(), added, added).state.routes == (route,)
    assert given(ready(), added, removed, removed).state.routes == ()


@covers("session.labels-are-never-lost")
def test_labels_of_a_permit_count_whatever_becomes_of_the_call() -> None:
    permit = CallPermitted(
        at=NOW,
        call=LOST,
        permit=PermitId("p"),
        digest=Digest("d"),
        verdict=Verdict(effect=Effect.ALLOW, because=()),
        labels=(source("sensitive", "first"),),
    )
    state = given(ready(), permit, LabelsAdded(at=NOW, labels=(source("sensitive", "second"),))).state
    assert state.labels == {"sensitive": source("sensitive", "first")}
    assert state.calls == {}


def test_the_end_of_an_unknown_call_changes_nothing() -> None:
    ended = CallFinished(at=NOW, call=LOST, permit=PermitId("p"), ok=True, result=Payload())
    assert given(ready(), ended).state.calls == {}


@covers("session.a-log-that-does-not-add-up-is-refused")
@pytest.mark.parametrize(
    "event",
    [
        ApprovalAnswered(at=NOW, approval=ApprovalId("zzzzzz"), granted=True, by=ANN),
        ApprovalJoined(at=NOW, approval=ApprovalId("zzzzzz"), call=LOST),
        ApprovalAsked(at=NOW, approval=ApprovalId("zzzzzz"), call=LOST, digest=Digest("d"), covers=(), shown="", policy=Digest("p")),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_log_that_speaks_of_what_is_not_open_is_broken(event: AnyEvent) -> None:
    with pytest.raises(Broken, match="event 3 of this log does not fit what came before it"):
        fold([*ready(), event])
    state = fold(ready())
    with pytest.raises(Broken):
        evolve(state, event)
    assert state == fold(ready())


def test_the_fold_of_nothing_is_a_new_state() -> None:
    assert fold([]) == SessionState()
