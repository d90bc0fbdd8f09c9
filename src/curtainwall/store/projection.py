"""Events in, row changes out: derives what lists and searches show from the log. Does not know the tables."""

from collections.abc import Sequence
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
    SessionReopened,
    SettingEvent,
    Settlement,
    StreamId,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    record,
    session_of,
)


@record
class SessionListed:
    """A session was opened."""

    session: SessionId
    event: SessionOpened


@record
class SessionSet:
    """One column of a session has a new value; a closed session's status stays."""

    session: SessionId
    column: Literal["status", "name", "mode", "model"]
    value: str


@record
class SessionUnlocked:
    """A closed session is open again."""

    session: SessionId


@record
class TurnBegun:
    """A session began another turn and is working; a closed session's status stays."""

    session: SessionId


@record
class LabelsSeen:
    """A session carries these labels."""

    session: SessionId
    labels: tuple[str, ...]


@record
class CallNamed:
    """The tool of a call that is not settled yet; its approvals are shown with it."""

    session: SessionId
    call: CallId
    tool: str


@record
class CallForgotten:
    """No approval will be asked for a call any more."""

    session: SessionId
    call: CallId


@record
class ApprovalListed:
    """An approval is open."""

    session: SessionId
    event: ApprovalAsked


@record
class ApprovalSettled:
    """An approval is settled; the first settlement stays."""

    session: SessionId
    approval: ApprovalId
    status: Literal["granted", "denied", "expired", "withdrawn"]
    at: Millis
    by: str
    reason: str


@record
class GrantListed:
    """A grant is in force."""

    stream: StreamId
    grant: Grant


@record
class GrantEnded:
    """A grant is no longer in force: it was revoked or used up."""

    stream: StreamId
    grant: GrantId
    at: Millis


@record
class RouteLeads:
    """A place leads to a session, or to none."""

    route: Route
    session: SessionId | None


@record
class RoutesEnded:
    """No place leads to a session any more."""

    session: SessionId


@record
class AsksShown:
    """A session's asks are now shown at a place, or no longer."""

    session: SessionId
    route: Route
    shown: bool


Change = (
    SessionListed
    | SessionSet
    | SessionUnlocked
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
    """Return the changes to the lists that an event causes; most events cause none."""
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


def net(every_change: Sequence[Change]) -> list[Change]:
    """Return the changes without calls that are named and then forgotten with no approval in between."""
    named: dict[CallId, int] = {}
    dropped: set[int] = set()
    for place, change in enumerate(every_change):
        if isinstance(change, CallNamed):
            named[change.call] = place
        elif isinstance(change, CallForgotten) and change.call in named:
            dropped |= {named.pop(change.call), place}
        elif isinstance(change, ApprovalListed):
            return list(every_change)
    return [change for place, change in enumerate(every_change) if place not in dropped] if dropped else list(every_change)


def _of_session(session: SessionId, event: SessionEvent) -> tuple[Change, ...]:
    match event:
        case SessionOpened():
            return (SessionListed(session, event),)
        case SessionReady():
            return (SessionSet(session, "status", "ready"),)
        case SessionClosed():
            return (SessionSet(session, "status", "closed"),)
        case SessionReopened():
            return (SessionUnlocked(session),)
        case TurnStarted():
            return (TurnBegun(session),)
        case TurnResumed():
            return (SessionSet(session, "status", "working"),)
        case TurnEnded():
            # A turn that did not end well is stored instead of `ready`; readers tell the two apart again.
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
            # From here on no approval is asked for it, and an existing one already has the tool's name.
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
