"""Whether a yes still holds: what a session has touched since, what was taken back, and which rules are in force by now."""

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
    SettingEvent,
    StreamId,
    Subject,
    project_stream,
    session_stream,
)
from curtainwall.runtime import SessionRegistry
from curtainwall.session import Rules, Since, fold, fold_project, lift, still_permitted

Holds = Callable[[], bool]
"""Tells whether what was permitted would still be."""


class WatchPoint(Protocol):
    """Where a session stood before somebody asked at its gate."""

    def since(self, call: CallId) -> Holds:
        """Watch over the yes to a call that was asked for after this."""
        ...


PermitWatch = Callable[[SessionId], WatchPoint]
"""Notes where a session stands. INVARIANT: done before the gate is asked, so that no moment lies between a verdict and its watch."""


def no_permit_watch(_session: SessionId) -> WatchPoint:
    """Take every yes to hold as long as anybody wants it."""
    return _Unwatched()


def permit_watch(house: SessionRegistry) -> PermitWatch:
    """Return what watches the sessions of a house."""

    def note(session: SessionId) -> WatchPoint:
        stream = session_stream(session)
        # The rules first: whichever others are there when it is decided, they are others than these.
        rules, project = house.rules(), _project_of(house, stream)
        return _Before(house, session, _Position(house.feed.head(stream), project, house.feed.head(project), rules))

    return note


class _Unwatched:
    def since(self, call: CallId) -> Holds:  # noqa: ARG002 - the port's signature
        return lambda: True


@dataclass(slots=True)
class _Position:
    """Up to where the logs of a session and its project are known, and the rules in force then."""

    seq: int
    project: StreamId
    project_seq: int
    rules: Rules


@dataclass(frozen=True, slots=True)
class _Before:
    """A session before its gate was asked."""

    house: SessionRegistry
    session: SessionId
    position: _Position

    def since(self, call: CallId) -> Holds:
        """Watch from the permit on, wherever the log has it; one that it does not have holds for nothing."""
        # A call that had joined the same one shares its permit, and both came after this.
        subject, permits, owner = None, dict[CallId, tuple[int, CallPermitted]](), call
        for recorded in self.house.feed.read(session_stream(self.session), self.position.seq):
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
        return _PermitState(self.house, self.session, self.position, subject, permit).holds


class _PermitState:
    """A yes, and what came since: only that is read, so that looking often costs little, and judged again where it could matter."""

    def __init__(self, house: SessionRegistry, session: SessionId, known: _Position, subject: Subject, permit: CallPermitted) -> None:
        self._house = house
        self._session = session
        self._known = known
        self._subject = subject
        self._permit = permit
        self._labels = set[Label]()
        self._is_revoked = False
        self._is_over = False

    def holds(self) -> bool:
        if not self._is_over:
            # It is over where looking fails, too: half of what is new may have been taken in.
            self._is_over = True
            self._is_over = self._is_deleted() or (self._has_changed() and not self._is_permitted())
        return not self._is_over

    def _is_deleted(self) -> bool:
        return self._house.feed.head(session_stream(self._session)) < self._known.seq

    def _has_changed(self) -> bool:
        """Take in what is new, and tell whether any of it could change the verdict."""
        known, feed = self._known, self._house.feed
        rules, news = self._house.rules(), list[AnyEvent]()
        for recorded in feed.read(session_stream(self._session), known.seq):
            known.seq = recorded.seq
            news.append(recorded.event)
        if feed.head(known.project) != known.project_seq:
            for recorded in feed.read(known.project, known.project_seq):
                known.project_seq = recorded.seq
                news.append(recorded.event)
        is_reloaded, known.rules = rules is not known.rules, rules
        # Each is looked at, whatever the others say: labels and revoked grants are remembered.
        return any([is_reloaded, *(self._matters(event) for event in news)])

    def _matters(self, event: AnyEvent) -> bool:
        if not isinstance(event, LifeEvent | SettingEvent | GrantEvent | CallEvent):
            return False
        match event:
            case GrantRevoked():
                self._is_revoked = True
                return True
            case ModeChanged() | RuleEnabled() | SessionClosed():
                return True
            case LabelsAdded() | CallPermitted():
                return self._is_new(event.labels)
            case SessionOpened() | SessionReady() | HistoryInherited() | SessionRenamed():
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
        """Judge again, by everything that is known now; nothing is asked and nothing is written."""
        house, known = self._house, self._known
        entries = house.stores.log.read
        state = house.peek(self._session) or fold(lift(entry) for entry in entries(session_stream(self._session)))
        if state.opened is None:
            return False
        grants = fold_project(lift(entry) for entry in entries(known.project)).grants
        rules = known.rules.of_session(state.opened).with_project_grants(grants)
        return still_permitted(state, self._subject, self._permit, rules, Since(self._labels, self._is_revoked))


def _project_of(house: SessionRegistry, stream: StreamId) -> StreamId:
    """Return the log of the project in which a session works; that is said once, when it is opened."""
    match [lift(entry) for entry in house.stores.log.read(stream, 0, 1)]:
        case [SessionOpened() as opened]:
            return project_stream(opened.workspace.path)
        case _:
            # There is no such session, and nothing will be permitted in it.
            return project_stream("")
