"""A session as its events tell it to someone who only listens: what runs, what waits, what was changed."""

from dataclasses import dataclass, field

from curtainwall.channels.changes import Change, changes_of
from curtainwall.model import (
    BUILTIN_AGENT,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalExpired,
    ApprovalId,
    ApprovalJoined,
    ApprovalWithdrawn,
    BudgetExhausted,
    BudgetKind,
    BudgetRaised,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    InterruptAsked,
    Label,
    LabelsAdded,
    MessageAccepted,
    MessageId,
    MessageWithdrawn,
    PendingAsk,
    SessionOpened,
    Subject,
    TurnEnded,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
)


@dataclass(slots=True)
class Tale:
    """What the events so far amount to. It serves the screen alone; nobody decides by it."""

    workspace: str = ""
    holds_calls: bool = False
    """Its agent does not park where a human is asked: the call stays open, and the agent waits for it."""
    turn: TurnId | None = None
    waits: bool = False
    interrupting: bool = False
    waits_for: tuple[CallId, ...] = ()
    queue: dict[MessageId, MessageAccepted] = field(default_factory=dict[MessageId, MessageAccepted])
    subjects: dict[CallId, Subject] = field(default_factory=dict[CallId, Subject])
    running: dict[CallId, Subject] = field(default_factory=dict[CallId, Subject])
    asks: dict[ApprovalId, PendingAsk] = field(default_factory=dict[ApprovalId, PendingAsk])
    exhausted: set[BudgetKind] = field(default_factory=set[BudgetKind])
    labels: set[Label] = field(default_factory=set[Label])
    changes: dict[Change, None] = field(default_factory=dict[Change, None])
    _asked: dict[CallId, ApprovalId] = field(default_factory=dict[CallId, ApprovalId])

    @property
    def works(self) -> bool:
        """Whether the agent is at work."""
        return self.turn is not None and not self.waits

    @property
    def short_of(self) -> tuple[BudgetKind, ...]:
        """The budgets that are used up, where nothing will happen until a human allows more."""
        is_stuck = self.waits or (self.turn is None and bool(self.queue))
        return tuple(sorted(self.exhausted)) if is_stuck else ()

    @property
    def is_parked(self) -> bool:
        """Whether nothing will happen until a human answers or allows more."""
        if self.short_of:
            return True
        if self.works and self.holds_calls:
            return bool(self._asked) and not self.running
        return self.waits and bool(self.waits_for) and all(call in self._asked for call in self.waits_for)

    def take(self, event: AnyEvent) -> None:
        """Go on by one event."""
        match event:
            case SessionOpened():
                self.workspace, self.holds_calls = event.workspace.path, event.agent != BUILTIN_AGENT
            case MessageAccepted():
                self.queue[event.message] = event
            case MessageWithdrawn():
                self.queue.pop(event.message, None)
            case TurnStarted():
                self.turn, self.waits, self.interrupting, self.waits_for = event.turn, False, False, ()
                self.changes.clear()
                for message in event.messages:
                    self.queue.pop(message, None)
            case TurnResumed():
                self.turn, self.waits, self.waits_for = event.turn, False, ()
            case TurnEnded():
                self._end(event)
            case InterruptAsked():
                self.interrupting = True
            case BudgetExhausted():
                self.exhausted.add(event.kind)
            case BudgetRaised():
                self.exhausted.discard(event.kind)
            case _:
                self._take_call(event)

    def _take_call(self, event: AnyEvent) -> None:
        match event:
            case CallRequested():
                self.subjects[event.call] = event.subject
            case LabelsAdded():
                self.labels.update(source.label for source in event.labels)
            case CallPermitted():
                self.labels.update(source.label for source in event.labels)
                self._asked.pop(event.call, None)
                if event.call in self.subjects:
                    self.running[event.call] = self.subjects[event.call]
            case CallFinished():
                subject = self._forget(event.call)
                if event.ok and subject is not None:
                    self.changes.update(dict.fromkeys(changes_of(subject)))
            case CallDenied() | CallLost() | CallDropped():
                self._forget(event.call)
            case ApprovalAsked():
                self._ask(event)
            case ApprovalJoined():
                self._asked[event.call] = event.approval
            case ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn():
                self.asks.pop(event.approval, None)
                self._asked = {call: approval for call, approval in self._asked.items() if approval != event.approval}
            case _:
                pass

    def _ask(self, event: ApprovalAsked) -> None:
        self._asked[event.call] = event.approval
        subject = self.subjects.get(event.call)
        if subject is not None:
            self.asks[event.approval] = PendingAsk(
                approval=event.approval,
                call=event.call,
                subject=subject,
                because=tuple(dict.fromkeys(rule for cover in event.covers for rule in cover.rules)),
                shown=event.shown,
                asked=event.at,
                deadline=event.deadline,
                shared_by=1,
            )

    def _end(self, event: TurnEnded) -> None:
        self.waits = event.status is TurnStatus.WAITING
        self.waits_for = event.waits_for if self.waits else ()
        self.interrupting = False
        self.turn = event.turn if self.waits else None

    def _forget(self, call: CallId) -> Subject | None:
        self._asked.pop(call, None)
        self.running.pop(call, None)
        return self.subjects.pop(call, None)
