"""One event further: totals, tolerance for what is told twice, and a damaged log."""

import pytest

from curtainwall.model import (
    SET_WORKING_DIR,
    SYSTEM,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalId,
    ApprovalJoined,
    Broken,
    CallFinished,
    CallId,
    CallPermitted,
    CallRequested,
    ContextMeasured,
    Digest,
    Effect,
    ExtensionNoted,
    HistoryCompacted,
    HistoryInherited,
    LabelsAdded,
    MessageAccepted,
    MessageId,
    MessageWithdrawn,
    Payload,
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
from curtainwall.session import SessionState, evolve, fold
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
    assert fold(log).queue == one_by_one.queue == ("c", "d")


@covers("tools.git-directory-kept")
def test_git_works_where_the_last_call_that_went_well_said() -> None:
    def chose(call: str, path: str, *, ok: bool = True) -> tuple[AnyEvent, ...]:
        said = read(path).model_copy(update={"tool": SET_WORKING_DIR, "canonical": {"path": path}})
        asks = CallRequested(at=NOW, call=CallId(call), subject=said)
        return asks, CallFinished(at=NOW, call=CallId(call), permit=PermitId("p"), ok=ok, result=Payload())

    assert fold(ready()).place.git_directory == ""
    state = fold((*ready(), *chose("c1", "/w/one"), *chose("c2", "/w/two"), *chose("c3", "/w/none", ok=False)))
    assert (state.git_directory, state.place.git_directory) == ("/w/two", "/w/two")
    inherited = HistoryInherited(at=NOW, parent=SESSION, upto=3, history=None, how="fork", git_directory="/copy/two")
    assert fold((*ready(), inherited)).git_directory == "/copy/two"


def test_evolving_leaves_the_state_before_as_it_was() -> None:
    before = given(ready(), turn_running(), asked(PUSH)).state
    kept = before.copy()
    after = evolve(before, ApprovalAnswered(at=NOW, approval=PUSH.approval, granted=True, by=ANN))
    assert before == kept
    assert after != before


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
