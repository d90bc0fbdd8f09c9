"""Replay: one test per broken promise, each a small dishonest change to an honest log."""

from collections.abc import Iterator

import pytest
from hypothesis import given as given_any
from hypothesis import settings
from hypothesis import strategies as st

from curtainwall.model import (
    SYSTEM,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalExpired,
    ApprovalJoined,
    BlobRef,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    Digest,
    Effect,
    ExtensionNoted,
    Frozen,
    GrantRevoked,
    GrantScope,
    GrantUsed,
    HistoryCompacted,
    HistoryInherited,
    ModelRequested,
    ModelResponded,
    Payload,
    PermitId,
    RecordProgress,
    SessionClosed,
    SessionId,
    SessionReady,
    SessionRenamed,
    TurnEnded,
    TurnId,
    TurnStatus,
    Usage,
    Verdict,
    denial,
)
from curtainwall.session import Violation, blobs_of, replay
from tests.support.covers import covers
from tests.support.given import (
    ANN,
    NOW,
    TURN,
    answer,
    asked,
    finished,
    given,
    opened,
    proceed,
    push,
    read,
    ready,
    requested,
    turn_running,
    wish,
)
from tests.support.strategies import EVENT_TYPES, words

LOOK = wish("c1", read("/srv/own/a"), TURN)
PUSH = wish("c2", push("github.com/me/r"), TURN)
REQUEST = ModelRequested(at=NOW, turn=TURN, request="r1", base=None, added=Payload(), model="demo")
RESPONSE = ModelResponded(at=NOW, turn=TURN, request="r1", raw=Payload(), normalised=Payload(), usage=Usage())
CLOSED = SessionClosed(at=NOW, reason="", by=ANN)

HONEST = given(
    ready(),
    turn_running(),
    RecordProgress(by=SYSTEM, events=(REQUEST, RESPONSE)),
    requested(LOOK),
    finished(LOOK),
    asked(PUSH),
    answer(PUSH, scope=GrantScope.SESSION),
    proceed(PUSH),
    finished(PUSH),
    TurnEnded(at=NOW, turn=TURN, status=TurnStatus.DONE),
).log


def whats(*events: AnyEvent) -> list[str]:
    return [violation.what for violation in replay(events, lambda _: None)]


def at(kind: type, number: int = 0) -> int:
    """Return where the honest log holds the n-th event of a type."""
    return [place for place, event in enumerate(HONEST) if type(event) is kind][number]


def without(kind: type, number: int = 0) -> tuple[AnyEvent, ...]:
    place = at(kind, number)
    return (*HONEST[:place], *HONEST[place + 1 :])


def with_another(kind: type, number: int = 0, **changes: object) -> tuple[AnyEvent, ...]:
    """Return the honest log with one event changed."""
    place = at(kind, number)
    return (*HONEST[:place], HONEST[place].model_copy(update=changes), *HONEST[place + 1 :])


@covers("session.replay-names-every-broken-promise")
def test_an_honest_log_breaks_no_promise() -> None:
    assert whats(*HONEST) == []
    assert whats(*HONEST, CLOSED, SessionRenamed(at=NOW, name="a", by=ANN), ExtensionNoted(at=NOW, extension="x", data={})) == []
    assert whats() == []


def test_a_log_begins_with_its_opening() -> None:
    assert replay([SessionReady(at=NOW), SessionReady(at=NOW)], lambda _: None) == (
        Violation(1, "the log does not begin with the session's opening"),
    )


def test_a_session_is_opened_once() -> None:
    assert whats(*HONEST, opened()) == ["the session was opened twice"]


def test_nothing_happens_after_the_end() -> None:
    assert whats(*HONEST, CLOSED, SessionReady(at=NOW)) == ["a `SessionReady` came after the session was closed"]


def test_a_call_is_requested_once() -> None:
    assert whats(*HONEST, HONEST[at(CallRequested)]) == ["call `c1` was requested twice"]


@covers("session.replay-names-every-broken-promise")
def test_a_call_is_permitted_after_it_was_requested() -> None:
    assert whats(*without(CallRequested)) == ["call `c1` was permitted before it was requested", "call `c1` has a result and no request"]


@covers("session.replay-names-every-broken-promise")
def test_a_permit_is_for_the_requested_subject() -> None:
    assert whats(*with_another(CallPermitted, digest=Digest("other"))) == ["the permit of call `c1` is for another subject"]


def test_a_call_is_permitted_once() -> None:
    place = at(CallPermitted)
    twice = HONEST[place].model_copy(update={"permit": PermitId("another")})
    assert whats(*HONEST[: place + 1], twice, *HONEST[place + 1 :]) == ["call `c1` was permitted twice"]


def test_a_permit_is_given_once() -> None:
    log = with_another(CallPermitted, 1, permit=LOOK.permit)
    assert "permit" in whats(*log)[0]
    assert f"permit `{LOOK.permit}` was given twice" in whats(*log)


def test_a_call_that_ended_is_not_permitted() -> None:
    place = at(CallPermitted)
    log = (*HONEST[:place], CallDenied(at=NOW, call=LOOK.call, verdict=denial("no-rule", "")), *HONEST[place:])
    assert whats(*log)[0] == "call `c1` was permitted after it had ended"


@covers("session.replay-names-every-broken-promise")
def test_nothing_is_permitted_against_a_denial() -> None:
    assert whats(*with_another(CallPermitted, verdict=denial("no-rule", ""))) == ["call `c1` was permitted against a denial"]


@covers("session.replay-names-every-broken-promise")
def test_an_ask_is_not_permitted_without_an_answer() -> None:
    ask = Verdict(effect=Effect.ASK, because=())
    assert whats(*with_another(CallPermitted, verdict=ask)) == ["call `c1` was permitted without the answer it needed"]


@covers("session.replay-names-every-broken-promise")
def test_an_ask_is_not_permitted_by_an_approval_that_was_not_granted_for_it() -> None:
    words = f"call `c2` was permitted by approval `{PUSH.approval}`, which was not granted for it"
    assert whats(*with_another(ApprovalAnswered, granted=False)) == [words]
    assert whats(*with_another(ApprovalAsked, digest=Digest("other"))) == [words]
    assert whats(*without(ApprovalAnswered)) == [words]


@covers("session.replay-names-every-broken-promise")
def test_a_call_finishes_with_its_own_permit() -> None:
    assert whats(*with_another(CallFinished, permit=PermitId("forged"))) == ["call `c1` finished without its permit"]
    assert whats(*without(CallPermitted)) == ["call `c1` has an outcome and was never permitted", "call `c1` finished without its permit"]


@covers("session.replay-names-every-broken-promise")
def test_a_permit_is_used_once() -> None:
    assert whats(*HONEST, HONEST[at(CallFinished)]) == ["call `c1` ended twice", f"permit `{LOOK.permit}` was used twice"]


def test_a_result_has_its_request() -> None:
    assert whats(*HONEST, CallDropped(at=NOW, call=CallId("c9"), why="")) == ["call `c9` has a result and no request"]


def test_a_call_ends_once() -> None:
    assert whats(*HONEST, CallLost(at=NOW, call=LOOK.call)) == ["call `c1` ended twice"]


@pytest.mark.parametrize("end", [CallDenied(at=NOW, call=LOOK.call, verdict=denial("a", "")), CallDropped(at=NOW, call=LOOK.call, why="")])
def test_a_permitted_call_has_an_outcome(end: AnyEvent) -> None:
    place = at(CallFinished)
    assert whats(*HONEST[:place], end, *HONEST[place + 1 :]) == ["call `c1` was permitted, and its outcome is missing"]


def test_what_was_never_permitted_cannot_be_lost() -> None:
    log = given(ready(), asked(PUSH)).log
    assert whats(*log, CallLost(at=NOW, call=PUSH.call)) == ["call `c2` has an outcome and was never permitted"]


def test_an_approval_is_asked_once() -> None:
    place = at(ApprovalAsked)
    assert whats(*HONEST[: place + 1], *HONEST[place:]) == [f"approval `{PUSH.approval}` was asked twice"]


def test_an_approval_is_for_a_call_that_waits() -> None:
    words = f"approval `{PUSH.approval}` is for call `c1`, which does not wait"
    assert whats(*with_another(ApprovalAsked, call=LOOK.call)) == [words]
    assert whats(*without(CallRequested, 1))[0] == f"approval `{PUSH.approval}` is for call `c2`, which does not wait"


def test_a_call_joins_an_open_approval() -> None:
    asking = HONEST[: at(ApprovalAsked) + 1]
    third = CallRequested(at=NOW, call=CallId("c3"), subject=PUSH.subject)
    joined = ApprovalJoined(at=NOW, approval=PUSH.approval, call=CallId("c3"))
    assert whats(*asking, third, joined) == []
    words = f"call `c3` joined approval `{PUSH.approval}`, which is not open"
    assert whats(*HONEST, third, joined) == [words]
    assert whats(*HONEST[: at(CallRequested, 1)], third, joined) == [words]


@covers("session.replay-names-every-broken-promise")
def test_an_approval_is_settled_once() -> None:
    words = f"approval `{PUSH.approval}` was settled without being open"
    assert whats(*HONEST, HONEST[at(ApprovalAnswered)]) == [words]
    assert whats(opened(), ApprovalExpired(at=NOW, approval=PUSH.approval)) == [words]


def test_a_grant_is_used_or_revoked_once_and_only_where_it_stands() -> None:
    revoked = GrantRevoked(at=NOW, grant=PUSH.grant, by=ANN)
    words = f"grant `{PUSH.grant}` was used or revoked and did not stand"
    assert whats(*HONEST, revoked) == []
    assert whats(*HONEST, revoked, GrantUsed(at=NOW, grant=PUSH.grant)) == [words]


@covers("session.replay-names-every-broken-promise")
def test_a_response_comes_after_its_request() -> None:
    assert whats(*without(ModelRequested)) == ["a response came before its request `r1`"]


def test_a_closed_session_owes_no_response() -> None:
    place = at(ModelRequested) + 1
    assert replay([*without(ModelResponded), CLOSED], lambda _: None) == (Violation(place, "request `r1` never got a response"),)
    assert whats(*without(ModelResponded)) == []


@pytest.mark.parametrize("number", [0, 1])
def test_the_outcome_of_a_permitted_call_is_there_when_its_turn_is_over(number: int) -> None:
    [what] = whats(*without(CallFinished, number))
    assert what.endswith("was permitted, and its outcome is missing")
    running = [event for event in without(CallFinished, number) if not isinstance(event, TurnEnded)]
    assert whats(*running) == [], "a call that runs has none yet"
    assert whats(*running, CLOSED) == [what]


def test_a_request_has_its_response_when_its_turn_is_over() -> None:
    place = at(ModelRequested)
    ours = HONEST[place].model_copy(update={"added": Payload(inline={"items": []})})
    log = [ours if event is HONEST[place] else event for event in without(ModelResponded)]
    assert whats(*log) == ["request `r1` never got a response"]
    assert whats(*(event for event in log if not isinstance(event, TurnEnded))) == []


@pytest.mark.parametrize("name", ["raw", "normalised"])
def test_what_a_provider_sent_back_is_kept_raw_and_normalised(name: str) -> None:
    kept = {"raw": Payload(inline={"id": "m1"}), "normalised": Payload(inline={"text": "hello"})}
    sent = with_another(ModelRequested, added=Payload(inline={"items": []}))
    place = at(ModelResponded)

    def with_response(**parts: Payload) -> tuple[AnyEvent, ...]:
        return (*sent[:place], sent[place].model_copy(update=parts), *sent[place + 1 :])

    assert whats(*with_response(**kept)) == []
    assert whats(*with_response(**{**kept, name: Payload()})) == [f"the {name} response to request `r1` is missing"]


def test_a_request_goes_on_from_one_that_is_there() -> None:
    assert whats(*with_another(ModelRequested, base="r0")) == ["request `r1` goes on from request `r0`, which is missing"]


def test_a_turn_ends_after_it_started() -> None:
    end = TurnEnded(at=NOW, turn=TurnId("t9"), status=TurnStatus.DONE)
    assert whats(*HONEST, end) == ["turn `t9` ended before it started"]


@covers("session.replay-names-every-broken-promise")
@pytest.mark.parametrize(
    ("event", "blobs"),
    [
        (HONEST[at(CallFinished)].model_copy(update={"result": Payload(blob=BlobRef(digest="a", size=1))}), 1),
        (HONEST[at(CallFinished)].model_copy(update={"shown": Payload(blob=BlobRef(digest="a", size=1))}), 1),
        (REQUEST.model_copy(update={"added": Payload(blob=BlobRef(digest="a", size=1))}), 1),
        (RESPONSE.model_copy(update=dict.fromkeys(("raw", "normalised"), Payload(blob=BlobRef(digest="a", size=1)))), 2),
        (HistoryCompacted(at=NOW, trigger="asked", before=1, after=1, upto=1, summary=Payload(blob=BlobRef(digest="a", size=1))), 1),
        (HistoryInherited(at=NOW, parent=SessionId("s0"), upto=1, history=BlobRef(digest="a", size=1), how="fork"), 1),
        (HistoryInherited(at=NOW, parent=SessionId("s0"), upto=1, history=None, how="reset"), 0),
    ],
)
def test_a_missing_or_altered_blob_is_named(event: AnyEvent, blobs: int) -> None:
    found = replay([opened(), event], lambda ref: f"blob `{ref.digest}` is gone")
    assert [violation for violation in found if "blob" in violation.what] == [Violation(2, "blob `a` is gone")] * blobs


@pytest.mark.parametrize("kind", [kind for kind in EVENT_TYPES if "BlobRef" in kind.model_json_schema().get("$defs", {})])
@settings(max_examples=20)
@given_any(st.data())
def test_every_blob_that_an_event_can_name_is_found(kind: type[Frozen], data: st.DataObject) -> None:
    event = data.draw(words(kind))
    assert sorted(blobs_of(event), key=str) == sorted(blobs_in(event), key=str)


def blobs_in(value: object) -> Iterator[BlobRef]:
    """Tell all blobs in a value, whatever its fields mean."""
    if isinstance(value, BlobRef):
        yield value
    elif isinstance(value, Frozen):
        for name in type(value).model_fields:
            yield from blobs_in(getattr(value, name))
    elif isinstance(value, tuple):
        for each in value:
            yield from blobs_in(each)
