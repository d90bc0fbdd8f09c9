"""A session as its events tell it to a screen: what runs, what waits, which files were changed. Nobody decides by it."""

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
    SessionOpened,
    SessionReady,
    SessionRenamed,
    SettingEvent,
    SpendingCounted,
    Subject,
    ToolEffect,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
    WorkTimed,
    in_order,
)
from curtainwall.session.open_work import OpenApproval, OpenWork, pending_ask, take

# What git and commands change is their own affair and not a list of files.
_NOT_FILES = frozenset({"git", "shell", "session", "fetch"})
_VERBS = {"write_file": "wrote", "edit_file": "edited", "delete_file": "deleted", "create_directory": "made"}


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that was done to one file."""

    verb: str
    path: str
    to: str = ""

    def words(self, workspace: str) -> str:
        """Return the change in words, with paths as seen from the workspace."""
        where = _seen_from(workspace, self.path)
        return in_order(f"{self.verb} {where} to {_seen_from(workspace, self.to)}" if self.to else f"{self.verb} {where}")


def changes_of(subject: Subject) -> tuple[Change, ...]:
    """Return what a call that went well did to files."""
    server, _, name = subject.tool.partition(".")
    if subject.effect is not ToolEffect.MODIFY or server in _NOT_FILES:
        return ()
    written = [it.value for it in subject.resources if it.role is Role.WRITE_PATH]
    deleted = [it.value for it in subject.resources if it.role is Role.DELETE_PATH]
    if server == "filesystem" and name == "move_file" and len(written) == len(deleted) == 1:
        return (Change("moved", deleted[0], written[0]),)
    verb = _VERBS.get(name, "changed") if server == "filesystem" else "changed"
    return (*(Change(verb, path) for path in written), *(Change("deleted", path) for path in deleted))


def _seen_from(workspace: str, path: str) -> str:
    inside = PurePosixPath(path)
    return str(inside.relative_to(workspace)) if inside.is_relative_to(workspace) else path


ActivityEvent = LifeEvent | SettingEvent | MessageEvent | TurnEvent | CallEvent | ApprovalEvent | BudgetEvent
"""The groups of events that a screen needs besides what the agent says."""

_ACTIVITY = Group[ActivityEvent](ActivityEvent)


@dataclass
class SessionActivity(OpenWork):
    """What the events so far amount to. It serves the screen alone; nobody decides by it."""

    workspace: str = ""
    holds_calls: bool = False
    """Its agent does not park where a human is asked: the call stays open, and the agent waits for it."""
    queue: dict[MessageId, MessageAccepted] = field(default_factory=dict[MessageId, MessageAccepted])
    asks: dict[ApprovalId, PendingAsk] = field(default_factory=dict[ApprovalId, PendingAsk])
    exhausted: set[BudgetKind] = field(default_factory=set[BudgetKind])
    labels: set[Label] = field(default_factory=set[Label])
    changes: dict[Change, None] = field(default_factory=dict[Change, None])

    @property
    def running(self) -> dict[CallId, Subject]:
        """The calls that may be running, in the order of their permits."""
        return {call: self.calls[call].subject for call in self.permitted if call in self.calls}

    @property
    def short_of(self) -> tuple[BudgetKind, ...]:
        """The budgets that are used up, where nothing will happen until a human allows more."""
        is_stuck = self.turn_waits or (self.turn is None and bool(self.queue))
        return tuple(sorted(self.exhausted)) if is_stuck else ()

    @property
    def is_parked(self) -> bool:
        """Whether nothing will happen until a human answers or allows more."""
        if self.short_of:
            return True
        if self.works and self.holds_calls:
            return any(map(self.is_asked, self.calls)) and not self.running
        return self.turn_waits and bool(self.parked_on) and all(map(self.is_asked, self.parked_on))

    def take(self, event: AnyEvent) -> None:
        """Go on by one event."""
        if _ACTIVITY.holds(event):
            self._tell(event)
        take(self, event)

    def _tell(self, event: ActivityEvent) -> None:
        """Take in what is more than open work; `event` is still ahead of that."""
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
            case SessionReady() | HistoryInherited() | SessionRenamed() | SessionClosed():
                pass
            case ModeChanged() | ModelChanged() | RuleDisabled() | RuleEnabled() | RouteAdded() | RouteRemoved():
                pass
            case BudgetWarned() | SpendingCounted() | WorkTimed():
                pass
            case _:
                assert_never(event)
