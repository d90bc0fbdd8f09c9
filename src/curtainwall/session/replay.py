"""Re-checks a session's log for violated invariants."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import assert_never

from curtainwall.model import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    BlobRef,
    BudgetRaised,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    Digest,
    Effect,
    ExtensionNoted,
    GrantEvent,
    GrantGiven,
    GrantId,
    GrantRevoked,
    GrantUsed,
    Group,
    HistoryInherited,
    InterruptAsked,
    LifeEvent,
    MessageWithdrawn,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Payload,
    PeerAnswered,
    PeerAnswerTaken,
    PermitId,
    RequestsRefused,
    SessionClosed,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SessionReopened,
    TurnEnded,
    TurnEvent,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    record,
)
from curtainwall.session.blobs import blobs_of

AnswerEvent = ApprovalEvent | GrantEvent
WorkingEvent = LifeEvent | TurnEvent | ModelEvent

_CALLS, _ANSWERS = Group[CallEvent](CallEvent), Group[AnswerEvent](AnswerEvent)
_TURNS = Group[WorkingEvent](WorkingEvent)

# Includes every event that the commands of `_AFTER_CLOSE` in `decide.py` cause.
_AFTER_CLOSE = (
    SessionRenamed,
    SessionReopened,
    MessageWithdrawn,
    GrantRevoked,
    ExtensionNoted,
    RequestsRefused,
    PeerAnswered,
    PeerAnswerTaken,
    BudgetRaised,
)

BlobCheck = Callable[[BlobRef], str | None]
"""Returns what is wrong with a blob, or None."""


@record
class Violation:
    """A violated invariant and the entry where it shows."""

    seq: int
    what: str


@dataclass(slots=True)
class _Seen:
    calls: dict[CallId, Digest] = field(default_factory=dict[CallId, Digest])
    turn_of: dict[CallId, TurnId] = field(default_factory=dict[CallId, TurnId])
    permitted: dict[CallId, int] = field(default_factory=dict[CallId, int])
    """Calls that were permitted, and where."""
    ended: set[CallId] = field(default_factory=set[CallId])
    permits: dict[PermitId, CallId] = field(default_factory=dict[PermitId, CallId])
    used: set[PermitId] = field(default_factory=set[PermitId])
    asked: dict[ApprovalId, Digest] = field(default_factory=dict[ApprovalId, Digest])
    settled: set[ApprovalId] = field(default_factory=set[ApprovalId])
    granted: set[str] = field(default_factory=set[str])
    grants: set[GrantId] = field(default_factory=set[GrantId])
    requests: dict[str, tuple[int, ModelRequested]] = field(default_factory=dict[str, tuple[int, ModelRequested]])
    """Requests without a response, and where they are."""
    sent: set[str] = field(default_factory=set[str])
    turns: set[TurnId] = field(default_factory=set[TurnId])
    over: dict[TurnId, TurnStatus] = field(default_factory=dict[TurnId, TurnStatus])
    """Turns that ended for good, and how."""
    inherits: bool = False
    opened: bool = False
    closed: bool = False


def replay(events: Iterable[AnyEvent], check_blob: BlobCheck) -> tuple[Violation, ...]:
    """Return every violated invariant of a session's log, in order."""
    seen, violations = _Seen(), list[Violation]()
    for seq, event in enumerate(events, start=1):
        if not seen.opened and not isinstance(event, SessionOpened):
            violations.append(Violation(seq, "the log does not begin with the session's opening"))
        if seen.closed and not isinstance(event, _AFTER_CLOSE):
            violations.append(Violation(seq, f"a `{type(event).__name__}` came after the session was closed"))
        violations += (Violation(seq, what) for what in (*_broken(seen, seq, event), *_bad_blobs(event, check_blob)))
        seen.opened = True
    return (*violations, *_missing(seen))


def _missing(seen: _Seen) -> list[Violation]:
    """Return what has no end and can no longer get one, because its turn is over or the session is closed."""
    requests = [
        Violation(place, f"request `{request}` never got a response")
        for request, (place, event) in seen.requests.items()
        # An interrupted turn may leave one behind, and the usage of an external agent may become known only after its turn.
        if seen.closed or (seen.over.get(event.turn) is TurnStatus.DONE and not _is_empty(event.added))
    ]
    calls = [
        Violation(place, f"call `{call}` was permitted, and its outcome is missing")
        for call, place in seen.permitted.items()
        if call not in seen.ended and (seen.closed or seen.turn_of.get(call) in seen.over)
    ]
    return [*requests, *calls]


def _broken(seen: _Seen, seq: int, event: AnyEvent) -> list[str]:
    if _CALLS.holds(event):
        return _broken_call(seen, seq, event)
    if _ANSWERS.holds(event):
        return _broken_answer(seen, event)
    return _broken_turn(seen, seq, event) if _TURNS.holds(event) else []


def _broken_call(seen: _Seen, seq: int, event: CallEvent) -> list[str]:
    match event:
        case CallRequested():
            if event.call in seen.calls:
                return [f"call `{event.call}` was requested twice"]
            seen.calls[event.call] = event.subject.digest
            if event.turn is not None:
                seen.turn_of[event.call] = event.turn
        case CallPermitted():
            return _permitted(seen, seq, event)
        case CallFinished():
            return _finished(seen, event)
        case CallDenied() | CallLost() | CallDropped():
            return _ended(seen, event.call, ran=isinstance(event, CallLost))
        case _:
            assert_never(event)
    return []


def _broken_answer(seen: _Seen, event: AnswerEvent) -> list[str]:
    match event:
        case ApprovalAsked() | ApprovalJoined():
            return _asked(seen, event)
        case ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn():
            if event.approval not in seen.asked or event.approval in seen.settled:
                return [f"approval `{event.approval}` was settled without being open"]
            seen.settled.add(event.approval)
            if isinstance(event, ApprovalAnswered) and event.granted:
                seen.granted.add(event.approval)
        case GrantGiven():
            seen.grants.add(event.grant.id)
        case GrantUsed() | GrantRevoked():
            if event.grant not in seen.grants:
                return [f"grant `{event.grant}` was used or revoked and did not stand"]
            seen.grants.remove(event.grant)
        case _:
            assert_never(event)
    return []


def _broken_turn(seen: _Seen, seq: int, event: WorkingEvent) -> list[str]:
    match event:
        case SessionOpened():
            return ["the session was opened twice"] if seen.opened else []
        case SessionClosed():
            seen.closed = True
        case SessionReopened():
            seen.closed = False
        case HistoryInherited():
            seen.inherits = True
        case ModelRequested():
            seen.requests[event.request] = (seq, event)
            seen.sent.add(event.request)
            if event.base is not None and event.base not in seen.sent and not seen.inherits:
                return [f"request `{event.request}` goes on from request `{event.base}`, which is missing"]
        case ModelResponded() | ModelFailed():
            return _responded(seen, event)
        case TurnStarted():
            seen.turns.add(event.turn)
        case TurnEnded():
            if event.turn not in seen.turns:
                return [f"turn `{event.turn}` ended before it started"]
            if event.status is not TurnStatus.WAITING:
                seen.over[event.turn] = event.status
        case SessionReady() | SessionRenamed() | TurnResumed() | InterruptAsked():
            pass
        case _:
            assert_never(event)
    return []


def _responded(seen: _Seen, event: ModelResponded | ModelFailed) -> list[str]:
    """Return what is wrong with a response. For external agents, neither requests nor responses are stored."""
    _, request = seen.requests.pop(event.request, (0, None))
    if request is None:
        return [f"a response came before its request `{event.request}`"]
    if isinstance(event, ModelFailed) or _is_empty(request.added):
        return []
    parts = (("raw", event.raw), ("normalised", event.normalised))
    return [f"the {name} response to request `{event.request}` is missing" for name, part in parts if _is_empty(part)]


def _is_empty(payload: Payload) -> bool:
    return payload.blob is None and payload.inline is None


def _permitted(seen: _Seen, seq: int, event: CallPermitted) -> list[str]:
    broken: list[str] = []
    if event.call not in seen.calls:
        broken.append(f"call `{event.call}` was permitted before it was requested")
    elif seen.calls[event.call] != event.digest:
        broken.append(f"the permit of call `{event.call}` is for another subject")
    if event.call in seen.permitted:
        broken.append(f"call `{event.call}` was permitted twice")
    if event.call in seen.ended:
        broken.append(f"call `{event.call}` was permitted after it had ended")
    if event.permit in seen.permits:
        broken.append(f"permit `{event.permit}` was given twice")
    if event.verdict.effect is Effect.DENY:
        broken.append(f"call `{event.call}` was permitted against a denial")
    if event.verdict.effect is Effect.ASK and not event.answered_by:
        broken.append(f"call `{event.call}` was permitted without the answer it needed")
    for name in event.answered_by:
        asked = seen.asked.get(ApprovalId(name))
        if asked is not None and (name not in seen.granted or asked != event.digest):
            broken.append(f"call `{event.call}` was permitted by approval `{name}`, which was not granted for it")
    seen.permits[event.permit] = event.call
    seen.permitted[event.call] = seq
    return broken


def _asked(seen: _Seen, event: ApprovalAsked | ApprovalJoined) -> list[str]:
    broken: list[str] = []
    if event.call not in seen.calls or event.call in seen.permitted or event.call in seen.ended:
        broken.append(f"approval `{event.approval}` is for call `{event.call}`, which does not wait")
    if isinstance(event, ApprovalJoined):
        if event.approval not in seen.asked or event.approval in seen.settled:
            broken.append(f"call `{event.call}` joined approval `{event.approval}`, which is not open")
        return broken
    if event.approval in seen.asked:
        broken.append(f"approval `{event.approval}` was asked twice")
    seen.asked[event.approval] = event.digest
    return broken


def _finished(seen: _Seen, event: CallFinished) -> list[str]:
    broken = _ended(seen, event.call, ran=True)
    if seen.permits.get(event.permit) != event.call:
        broken.append(f"call `{event.call}` finished without its permit")
    if event.permit in seen.used:
        broken.append(f"permit `{event.permit}` was used twice")
    seen.used.add(event.permit)
    return broken


def _ended(seen: _Seen, call: CallId, *, ran: bool) -> list[str]:
    """Return what is wrong with the end of a call: a call that may have run needs a permit, and a call that did not run has none."""
    if call not in seen.calls:
        return [f"call `{call}` has a result and no request"]
    if call in seen.ended:
        return [f"call `{call}` ended twice"]
    seen.ended.add(call)
    if ran and call not in seen.permitted:
        return [f"call `{call}` has an outcome and was never permitted"]
    if not ran and call in seen.permitted:
        return [f"call `{call}` was permitted, and its outcome is missing"]
    return []


def _bad_blobs(event: AnyEvent, check: BlobCheck) -> list[str]:
    return [problem for ref in blobs_of(event) if (problem := check(ref)) is not None]
