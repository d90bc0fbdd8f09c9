"""Events in, row changes out: what lists and searches show, told from the log alone; it knows no table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from curtainwall.model import (
    HOUSE,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    Grant,
    GrantEvent,
    GrantGiven,
    GrantId,
    GrantRevoked,
    GrantUsed,
    Group,
    HistoryInherited,
    HouseEvent,
    InterruptAsked,
    LabelsAdded,
    LabelSource,
    LifeEvent,
    Millis,
    ModeChanged,
    ModelChanged,
    PeerAnswered,
    PeerAnswerHeld,
    PeerAnswerTaken,
    PeerEvent,
    PeerMessageSent,
    Route,
    RouteAdded,
    RouteRemoved,
    RouteSet,
    RuleDisabled,
    RuleEnabled,
    SessionClosed,
    SessionDeleted,
    SessionId,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SettingEvent,
    Settlement,
    StreamId,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    session_of,
)


@dataclass(frozen=True, slots=True)
class SessionListed:
    """A session is new."""

    session: SessionId
    event: SessionOpened


@dataclass(frozen=True, slots=True)
class SessionSet:
    """One column of a session has another value; a closed session's status stays."""

    session: SessionId
    column: Literal["status", "name", "mode", "model"]
    value: str


@dataclass(frozen=True, slots=True)
class TurnBegun:
    """A session works, and has one turn more; a closed session's status stays."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class LabelsSeen:
    """A session carries these labels."""

    session: SessionId
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallNamed:
    """A call was made and is not judged to its end, and this is its tool; approvals are shown with it."""

    session: SessionId
    call: CallId
    tool: str


@dataclass(frozen=True, slots=True)
class CallForgotten:
    """Nobody will be asked about a call any more."""

    session: SessionId
    call: CallId


@dataclass(frozen=True, slots=True)
class ApprovalListed:
    """An approval is open."""

    session: SessionId
    event: ApprovalAsked


@dataclass(frozen=True, slots=True)
class ApprovalSettled:
    """An approval is settled; the first settlement stays."""

    session: SessionId
    approval: ApprovalId
    status: Literal["granted", "denied", "expired", "withdrawn"]
    at: Millis
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class GrantListed:
    """An answer stands."""

    stream: StreamId
    grant: Grant


@dataclass(frozen=True, slots=True)
class GrantEnded:
    """An answer no longer stands: revoked, or used up."""

    stream: StreamId
    grant: GrantId
    at: Millis


@dataclass(frozen=True, slots=True)
class RouteLeads:
    """A place leads to a session, or to none."""

    route: Route
    session: SessionId | None


@dataclass(frozen=True, slots=True)
class RoutesEnded:
    """No place leads to a session any more."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class AsksShown:
    """A session's asks are shown at a place from here on, or no longer."""

    session: SessionId
    route: Route
    shown: bool


Change = (
    SessionListed
    | SessionSet
    | TurnBegun
    | LabelsSeen
    | CallNamed
    | CallForgotten
    | ApprovalListed
    | ApprovalSettled
    | GrantListed
    | GrantEnded
    | RouteLeads
    | RoutesEnded
    | AsksShown
)


GateEvent = CallEvent | ApprovalEvent
SessionEvent = LifeEvent | SettingEvent | TurnEvent | PeerEvent
SharedEvent = GrantEvent | HouseEvent

_GATE, _SESSION, _SHARED = Group[GateEvent](GateEvent), Group[SessionEvent](SessionEvent), Group[SharedEvent](SharedEvent)


def changes(stream: StreamId, event: AnyEvent) -> tuple[Change, ...]:
    """Return what an event changes in the lists; most change nothing."""
    if _SHARED.holds(event):
        return _of_any_stream(stream, event)
    if _GATE.holds(event):
        session = session_of(stream)
        return () if session is None else _of_gate(session, event)
    if _SESSION.holds(event):
        session = session_of(stream)
        return () if session is None else _of_session(session, event)
    return ()


def _of_any_stream(stream: StreamId, event: SharedEvent) -> tuple[Change, ...]:
    match event:
        case GrantGiven():
            return (GrantListed(stream, event.grant),)
        case GrantUsed() | GrantRevoked():
            return (GrantEnded(stream, event.grant, event.at),)
        case RouteSet():
            return (RouteLeads(event.route, event.session),) if stream == HOUSE else ()
        case SessionDeleted():
            return (RoutesEnded(event.session),) if stream == HOUSE else ()
        case _:
            assert_never(event)


def net(made: Sequence[Change]) -> list[Change]:
    """Return the same changes without calls that are named and forgotten further on, with nobody asked in between."""
    named: dict[CallId, int] = {}
    brief: set[int] = set()
    for place, change in enumerate(made):
        if isinstance(change, CallNamed):
            named[change.call] = place
        elif isinstance(change, CallForgotten) and change.call in named:
            brief |= {named.pop(change.call), place}
        elif isinstance(change, ApprovalListed):
            return list(made)
    return [change for place, change in enumerate(made) if place not in brief] if brief else list(made)


def _of_session(session: SessionId, event: SessionEvent) -> tuple[Change, ...]:
    match event:
        case SessionOpened():
            return (SessionListed(session, event),)
        case SessionReady():
            return (SessionSet(session, "status", "ready"),)
        case SessionClosed():
            return (SessionSet(session, "status", "closed"),)
        case TurnStarted():
            return (TurnBegun(session),)
        case TurnResumed():
            return (SessionSet(session, "status", "working"),)
        case TurnEnded():
            # What did not end well is noted in the place of `ready`; whoever reads it puts the two apart again.
            return (SessionSet(session, "status", "ready" if event.status is TurnStatus.DONE else event.status.value),)
        case SessionRenamed():
            return (SessionSet(session, "name", event.name),)
        case ModeChanged():
            return (SessionSet(session, "mode", event.mode.value),)
        case ModelChanged():
            return (SessionSet(session, "model", event.model),)
        case LabelsAdded():
            return _labels(session, event.labels)
        case PeerAnswerTaken():
            return _labels(session, event.answer.labels)
        case RouteAdded() | RouteRemoved():
            return (AsksShown(session, event.route, isinstance(event, RouteAdded)),)
        case HistoryInherited() | RuleDisabled() | RuleEnabled() | InterruptAsked():
            return ()
        case PeerMessageSent() | PeerAnswered() | PeerAnswerHeld():
            return ()
        case _:
            assert_never(event)


def _of_gate(session: SessionId, event: GateEvent) -> tuple[Change, ...]:
    match event:
        case CallRequested():
            return (CallNamed(session, event.call, event.subject.tool),)
        case CallPermitted():
            # From here on nobody is asked about it, and its approval has its name.
            return CallForgotten(session, event.call), *_labels(session, event.labels)
        case CallDenied() | CallDropped():
            return (CallForgotten(session, event.call),)
        case ApprovalAsked():
            return (ApprovalListed(session, event),)
        case ApprovalAnswered():
            status = Settlement.GRANTED.value if event.granted else Settlement.DENIED.value
            return (ApprovalSettled(session, event.approval, status, event.at, str(event.by), event.reason),)
        case ApprovalExpired():
            return (ApprovalSettled(session, event.approval, Settlement.EXPIRED.value, event.at, "", ""),)
        case ApprovalWithdrawn():
            return (ApprovalSettled(session, event.approval, Settlement.WITHDRAWN.value, event.at, "", event.why),)
        case CallFinished() | CallLost() | ApprovalJoined():
            return ()
        case _:
            assert_never(event)


def _labels(session: SessionId, sources: tuple[LabelSource, ...]) -> tuple[Change, ...]:
    return (LabelsSeen(session, tuple(source.label for source in sources)),) if sources else ()
