"""Checks whether a permit still holds, given what the session has read since, which grants were revoked, and the rules now in force."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, assert_never

from curtainwall.model import (
    AnyEvent,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    GrantEvent,
    GrantGiven,
    GrantRevoked,
    GrantUsed,
    HistoryInherited,
    Label,
    LabelsAdded,
    LabelSource,
    LifeEvent,
    ModeChanged,
    ModelChanged,
    RouteAdded,
    RouteRemoved,
    RuleDisabled,
    RuleEnabled,
    SessionClosed,
    SessionId,
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SessionReopened,
    SettingEvent,
    StreamId,
    Subject,
    project_stream,
    record,
    session_stream,
)
from curtainwall.runtime import SessionRegistry
from curtainwall.session import Rules, Since, fold_project, lift, still_permitted

Holds = Callable[[], bool]
"""Tells whether a permitted call would still be permitted."""


class WatchPoint(Protocol):
    """The position of a session before its gate was asked."""

    def since(self, call: CallId) -> Holds:
        """Return a check of the permit for a call that was requested after this point."""
        ...


PermitWatch = Callable[[SessionId], WatchPoint]
"""Records a session's position. INVARIANT: called before the gate is asked, so that there is no gap between a verdict and its watch."""


def no_permit_watch(_session: SessionId) -> WatchPoint:
    """Treat every permit as holding for ever."""
    return _Unwatched()


def permit_watch(registry: SessionRegistry) -> PermitWatch:
    """Return a watch over the permits of a registry's sessions."""

    def note(session: SessionId) -> WatchPoint:
        stream = session_stream(session)
        # Read the rules first: if the decision uses others, they differ from these, and the change is noticed.
        rules, project = registry.rules(), _project_of(registry, stream)
        return _Before(registry, session, _Position(registry.feed.head(stream), project, registry.feed.head(project), rules))

    return note


class _Unwatched:
    def since(self, call: CallId) -> Holds:  # noqa: ARG002 - the port's signature
        return lambda: True


@dataclass(slots=True)
class _Position:
    """How far the logs of a session and its project have been read, and the rules in force then."""

    seq: int
    project: StreamId
    project_seq: int
    rules: Rules


@record
class _Before:
    """A session before its gate was asked."""

    registry: SessionRegistry
    session: SessionId
    position: _Position

    def since(self, call: CallId) -> Holds:
        """Watch from the permit's entry in the log; without such an entry, nothing holds."""
        # A call that joined an identical one shares its permit, and both came after this position.
        subject, permits, owner = None, dict[CallId, tuple[int, CallPermitted]](), call
        for recorded in self.registry.feed.read(session_stream(self.session), self.position.seq):
            event = recorded.event
            if not isinstance(event, CallEvent):
                continue
            match event:
                case CallRequested():
                    subject = event.subject if event.call == call else subject
                case CallPermitted():
                    permits[event.call] = recorded.seq, event
                case CallDropped():
                    owner = event.shares if event.call == call and event.shares is not None else owner
                case CallDenied() | CallFinished() | CallLost():
                    pass
                case _:
                    assert_never(event)
        if subject is None or owner not in permits:
            return lambda: False
        self.position.seq, permit = permits[owner]
        return _PermitState(self.registry, self.session, self.position, subject, permit).holds


class _PermitState:
    """A permit and what happened since. Only new entries are read, so checking often is cheap; the call is judged again if they matter."""

    def __init__(self, registry: SessionRegistry, session: SessionId, position: _Position, subject: Subject, permit: CallPermitted) -> None:
        self._registry = registry
        self._session = session
        self._position = position
        self._subject = subject
        self._permit = permit
        self._labels = set[Label]()
        self._is_revoked = False
        self._is_closed = False
        self._is_over = False

    def holds(self) -> bool:
        if not self._is_over:
            # If the check fails, the permit is over too: only part of the news may have been taken in.
            self._is_over = True
            self._is_over = self._is_deleted() or (self._has_changed() and not self._is_permitted())
        return not self._is_over

    def _is_deleted(self) -> bool:
        return self._registry.feed.head(session_stream(self._session)) < self._position.seq

    def _has_changed(self) -> bool:
        """Take in new entries and return whether any of them could change the verdict."""
        position, feed = self._position, self._registry.feed
        rules, news = self._registry.rules(), list[AnyEvent]()
        for recorded in feed.read(session_stream(self._session), position.seq):
            position.seq = recorded.seq
            news.append(recorded.event)
        if feed.head(position.project) != position.project_seq:
            for recorded in feed.read(position.project, position.project_seq):
                position.project_seq = recorded.seq
                news.append(recorded.event)
        is_reloaded, position.rules = rules is not position.rules, rules
        # A list, so that every event is examined: labels and revoked grants must be remembered.
        return any([is_reloaded, *(self._matters(event) for event in news)])

    def _matters(self, event: AnyEvent) -> bool:
        if not isinstance(event, LifeEvent | SettingEvent | GrantEvent | CallEvent):
            return False
        match event:
            case GrantRevoked():
                self._is_revoked = True
                return True
            case SessionClosed():
                self._is_closed = True
                return True
            case ModeChanged() | RuleEnabled():
                return True
            case LabelsAdded() | CallPermitted():
                return self._is_new(event.labels)
            case SessionOpened() | SessionReady() | HistoryInherited() | SessionRenamed() | SessionReopened():
                return False
            case ModelChanged() | RuleDisabled() | RouteAdded() | RouteRemoved() | GrantGiven() | GrantUsed():
                return False
            case CallRequested() | CallDenied() | CallFinished() | CallLost() | CallDropped():
                return False
            case _:
                assert_never(event)

    def _is_new(self, sources: Iterable[LabelSource]) -> bool:
        new = {source.label for source in sources} - self._labels
        self._labels |= new
        return bool(new)

    def _is_permitted(self) -> bool:
        """Judge again by everything known now, without asking anyone or writing anything."""
        registry, position = self._registry, self._position
        entries = registry.stores.log.read
        state = registry.look_at(self._session)
        # INVARIANT: a session that is opened again gives no permit back that its end took away.
        if state.opened is None or self._is_closed:
            return False
        grants = fold_project(lift(entry) for entry in entries(position.project)).grants
        rules = position.rules.of_session(state.opened).with_project_grants(grants)
        return still_permitted(state, self._subject, self._permit, rules, Since(self._labels, self._is_revoked))


def _project_of(registry: SessionRegistry, stream: StreamId) -> StreamId:
    """Return the stream of a session's project, which its first event names."""
    match [lift(entry) for entry in registry.stores.log.read(stream, 0, 1)]:
        case [SessionOpened() as opened]:
            return project_stream(opened.workspace.path)
        case _:
            # There is no such session, so nothing will be permitted in it.
            return project_stream("")
