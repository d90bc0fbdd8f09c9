"""The activity of a session for screens, folded from its events: running and waiting work, changed files. No decision depends on it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import assert_never

from curtainwall.model import (
    BUILTIN_AGENT,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    BudgetEvent,
    BudgetExhausted,
    BudgetKind,
    BudgetRaised,
    BudgetWarned,
    CallDenied,
    CallDropped,
    CallEvent,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    Desk,
    Feed,
    Group,
    HistoryInherited,
    InterruptAsked,
    Label,
    LabelsAdded,
    LifeEvent,
    MessageAccepted,
    MessageEvent,
    MessageId,
    MessageWithdrawn,
    ModeChanged,
    ModelChanged,
    PendingAsk,
    Role,
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
    SpendingCounted,
    Subject,
    ToolEffect,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
    WorkTimed,
    changed_files,
    in_order,
    record,
    session_stream,
    unlisted_changes,
)
from curtainwall.session.open_work import OpenApproval, OpenWork, pending_ask, take

# We do not list the files that git and commands change.
_NOT_FILES = frozenset({"git", "shell", "session", "fetch"})
_MOST_NAMED = 20
_VERBS = {"write_file": "wrote", "edit_file": "edited", "delete_file": "deleted", "create_directory": "made"}


@record
class Change:
    """One change to one file."""

    verb: str
    path: str
    to: str = ""

    def words(self, workspace: str) -> str:
        """Describe the change, with paths relative to the workspace."""
        path = _relative_to(workspace, self.path)
        return in_order(f"{self.verb} {path} to {_relative_to(workspace, self.to)}" if self.to else f"{self.verb} {path}")

    def as_json(self, workspace: str) -> dict[str, str]:
        """Return the change as JSON, with paths relative to the workspace."""
        entry = {"change": self.verb, "path": _relative_to(workspace, self.path)}
        return {**entry, "to": _relative_to(workspace, self.to)} if self.to else entry


def changes_of(subject: Subject) -> tuple[Change, ...]:
    """Return the changes that a successful call made to files."""
    server, _, name = subject.tool.partition(".")
    if subject.effect is not ToolEffect.MODIFY or server in _NOT_FILES:
        return ()
    written = [resource.value for resource in subject.resources if resource.role is Role.WRITE_PATH]
    deleted = [resource.value for resource in subject.resources if resource.role is Role.DELETE_PATH]
    if server == "filesystem" and name == "move_file" and len(written) == len(deleted) == 1:
        return (Change("moved", deleted[0], written[0]),)
    verb = _VERBS.get(name, "changed") if server == "filesystem" else "changed"
    return (*(Change(verb, path) for path in written), *(Change("deleted", path) for path in deleted))


def _relative_to(workspace: str, path: str) -> str:
    pure = PurePosixPath(path)
    return str(pure.relative_to(workspace)) if pure.is_relative_to(workspace) else path


ActivityEvent = LifeEvent | SettingEvent | MessageEvent | TurnEvent | CallEvent | ApprovalEvent | BudgetEvent
"""The groups of events that a screen needs besides the agent's text."""

_ACTIVITY = Group[ActivityEvent](ActivityEvent)


@dataclass
class SessionActivity(OpenWork):
    """The state of a session for a screen, from its events so far. No decision depends on it."""

    workspace: str = ""
    holds_calls: bool = False
    """Whether its agent keeps a call open and waits while a human is asked, instead of parking the turn."""
    queue: dict[MessageId, MessageAccepted] = field(default_factory=dict[MessageId, MessageAccepted])
    asks: dict[ApprovalId, PendingAsk] = field(default_factory=dict[ApprovalId, PendingAsk])
    exhausted: set[BudgetKind] = field(default_factory=set[BudgetKind])
    labels: set[Label] = field(default_factory=set[Label])
    changes: dict[Change, None] = field(default_factory=dict[Change, None])
    unlisted_changes: int = 0
    """How many more files changed in the turn than are listed."""

    def change_words(self) -> str:
        """Describe the changed files on one line; empty if there are none."""
        words = [change.words(self.workspace) for change in self.changes]
        more = len(words[_MOST_NAMED:]) + self.unlisted_changes
        return ", ".join((*words[:_MOST_NAMED], *([f"{more} more"] if more else [])))

    @property
    def running(self) -> dict[CallId, Subject]:
        """Return the calls that may be running, in the order of their permits."""
        return {call: self.calls[call].subject for call in self.permitted if call in self.calls}

    @property
    def short_of(self) -> tuple[BudgetKind, ...]:
        """Return the exhausted budgets, if nothing will happen until a human allows more."""
        is_stuck = self.turn_waits or (self.turn is None and bool(self.queue))
        return tuple(sorted(self.exhausted)) if is_stuck else ()

    @property
    def is_parked(self) -> bool:
        """Tell whether nothing will happen until a human answers or allows more."""
        if self.short_of:
            return True
        if self.works and self.holds_calls:
            return any(map(self.is_asked, self.calls)) and not self.running
        return self.turn_waits and bool(self.parked_on) and all(map(self.is_asked, self.parked_on))

    def take(self, event: AnyEvent) -> None:
        """Apply one event."""
        if _ACTIVITY.holds(event):
            self._apply(event)
        elif paths := changed_files(event):
            self._add_changes(paths, unlisted_changes(event))
        take(self, event)

    def _add_changes(self, paths: Sequence[str], more: int) -> None:
        """Add the files that changed while an external agent worked, unless a call of its tools changed them."""
        known = {change.to or change.path for change in self.changes}
        whole = (f"{self.workspace}/{path}" for path in paths)
        self.changes.update({Change("changed", path): None for path in whole if path not in known})
        self.unlisted_changes = more

    def _apply(self, event: ActivityEvent) -> None:
        """Apply an event to everything besides the open work, which is updated afterwards."""
        match event:
            case SessionOpened():
                self.workspace, self.holds_calls = event.workspace.path, event.agent != BUILTIN_AGENT
            case MessageAccepted():
                if event.role == "human":
                    self.queue[event.message] = event
            case MessageWithdrawn():
                self.queue.pop(event.message, None)
            case TurnStarted():
                self.changes.clear()
                self.unlisted_changes = 0
                for message in event.messages:
                    self.queue.pop(message, None)
            case BudgetExhausted():
                self.exhausted.add(event.kind)
            case BudgetRaised():
                self.exhausted.discard(event.kind)
            case LabelsAdded() | CallPermitted():
                self.labels.update(source.label for source in event.labels)
            case CallFinished():
                subject = self.subject_of(event.call)
                if event.ok and subject is not None:
                    self.changes.update(dict.fromkeys(changes_of(subject)))
            case ApprovalAsked():
                subject = self.subject_of(event.call)
                if subject is not None:
                    self.asks[event.approval] = pending_ask(OpenApproval(event, (event.call,)), subject)
            case ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn():
                self.asks.pop(event.approval, None)
            case TurnResumed() | TurnEnded() | InterruptAsked():
                pass
            case CallRequested() | CallDenied() | CallLost() | CallDropped() | ApprovalJoined():
                pass
            case SessionReady() | HistoryInherited() | SessionRenamed() | SessionClosed() | SessionReopened():
                pass
            case ModeChanged() | ModelChanged() | RuleDisabled() | RuleEnabled() | RouteAdded() | RouteRemoved():
                pass
            case BudgetWarned() | SpendingCounted() | WorkTimed():
                pass
            case _:
                assert_never(event)


def past_activity(desk: Desk, feed: Feed, session: SessionId) -> tuple[SessionActivity, int]:
    """Return a session's activity so far, and the cursor after it. A session at rest has nothing that takes its log to know."""
    stream = session_stream(session)
    head = feed.head(stream)
    view = desk.view(session)
    # INVARIANT: the log did not grow in between, so the view is that of the log up to this cursor.
    if view.status == "ready" and not view.queue and not view.pending and feed.head(stream) == head:
        labels = {source.label for source in view.labels}
        activity = SessionActivity(
            workspace=view.workspace.path, holds_calls=view.agent != BUILTIN_AGENT, exhausted=set(view.exhausted), labels=labels
        )
        return activity, head
    activity, cursor = SessionActivity(), 0
    for recorded in feed.read(stream):
        activity.take(recorded.event)
        cursor = recorded.seq
    return activity, cursor
