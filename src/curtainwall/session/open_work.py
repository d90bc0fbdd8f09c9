"""The open work of a session: its turn, its calls, its asks and the programs that wait. Every reader of a log uses this one fold.

It imports only the model, so that agents and channels can use it without the rest of the core.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar, assert_never

from curtainwall.model import (
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
    Cover,
    Group,
    InterruptAsked,
    PendingAsk,
    PermitId,
    ProgramEvent,
    ProgramFinished,
    ProgramSaved,
    SavedProgram,
    Subject,
    TurnEnded,
    TurnEvent,
    TurnId,
    TurnResumed,
    TurnStarted,
    TurnStatus,
    Who,
)

K = TypeVar("K")
V = TypeVar("V")

OpenWorkEvent = CallEvent | ApprovalEvent | TurnEvent | ProgramEvent
"""The groups of events that change open work."""

_OPEN_WORK = Group[OpenWorkEvent](OpenWorkEvent)


class CallStatus(StrEnum):
    """The state of an open call."""

    REQUESTED = "requested"
    ASKED = "asked"
    ANSWERED = "answered"
    PERMITTED = "permitted"


class OpenCall(NamedTuple):
    """A call without an outcome."""

    subject: Subject
    standing: CallStatus
    turn: TurnId | None
    approval: ApprovalId | None = None
    covers: tuple[Cover, ...] = ()
    answered_by: Who | None = None
    permit: PermitId | None = None


class OpenApproval(NamedTuple):
    """An unanswered ask. Its first call is the one that runs; the others share the outcome."""

    asked: ApprovalAsked
    calls: tuple[CallId, ...]


@dataclass
class OpenWork:
    """The open work after the events so far.

    INVARIANT: only `advance` changes it, and it replaces the values held here instead of mutating them, so a shallow copy is a full copy.
    The fold may start anywhere in a log: an event about a call that was requested earlier is not an error.
    """

    turn: TurnId | None = None
    turn_waits: bool = False
    interrupting: bool = False
    parked_on: tuple[CallId, ...] = ()
    calls: Mapping[CallId, OpenCall] = field(default_factory=dict[CallId, OpenCall])
    permitted: tuple[CallId, ...] = ()
    """The calls that may be running, in the order they were permitted."""
    approvals: Mapping[ApprovalId, OpenApproval] = field(default_factory=dict[ApprovalId, OpenApproval])
    only: Mapping[CallId, tuple[str, ...]] = field(default_factory=dict[CallId, tuple[str, ...]])
    """For each open call whose change set was accepted in part, the accepted paths."""
    program: SavedProgram | None = None
    """The program that waits inside a call, at the furthest point it has reached."""

    @property
    def works(self) -> bool:
        """Tell whether the agent is at work."""
        return self.turn is not None and not self.turn_waits

    def subject_of(self, call: CallId) -> Subject | None:
        """Return the subject of an open call."""
        return self.calls[call].subject if call in self.calls else None

    def is_asked(self, call: CallId) -> bool:
        """Tell whether a call waits for a human's answer."""
        open_call = self.calls.get(call)
        return open_call is not None and open_call.standing is CallStatus.ASKED and open_call.approval in self.approvals

    def is_granted(self, call: CallId) -> bool:
        """Tell whether a call, or the one it joined, was granted, and the call itself has not run."""
        open_call = self.calls.get(call)
        if open_call is None or open_call.approval is None:
            return False
        return open_call.standing is CallStatus.ANSWERED or (open_call.standing is CallStatus.ASKED and open_call.approval in self.firsts())

    def firsts(self) -> Mapping[ApprovalId, CallId]:
        """Return, for each approval, the call whose outcome the joined calls will share, while that call is answered or permitted."""
        firsts: dict[ApprovalId, CallId] = {}
        for call, open_ in self.calls.items():
            if open_.approval is not None and open_.standing in (CallStatus.ANSWERED, CallStatus.PERMITTED):
                firsts.setdefault(open_.approval, call)
        return firsts

    def calls_in(self, turn: TurnId) -> tuple[CallId, ...]:
        """Return the open calls of a turn."""
        return tuple(call for call, open_ in self.calls.items() if open_.turn == turn)


def take(work: OpenWork, event: AnyEvent) -> None:
    """Apply the next event of a log."""
    if _OPEN_WORK.holds(event):
        advance(work, event)


def advance(work: OpenWork, event: OpenWorkEvent) -> None:
    """Apply the next event of these groups."""
    match event:
        case CallRequested():
            opened = OpenCall(subject=event.subject, standing=CallStatus.REQUESTED, turn=event.turn)
            work.calls = {**work.calls, event.call: opened}
        case CallPermitted():
            work.permitted = (*work.permitted, event.call)
            _stand(work, event.call, standing=CallStatus.PERMITTED, permit=event.permit)
        case CallFinished() | CallLost() | CallDropped() | CallDenied():
            _close(work, event.call)
        case ApprovalAsked():
            work.approvals = {**work.approvals, event.approval: OpenApproval(asked=event, calls=(event.call,))}
            _stand(work, event.call, standing=CallStatus.ASKED, approval=event.approval, covers=())
        case ApprovalJoined():
            joined = work.approvals.get(event.approval)
            if joined is not None:
                work.approvals = {**work.approvals, event.approval: joined._replace(calls=(*joined.calls, event.call))}
            _stand(work, event.call, standing=CallStatus.ASKED, approval=event.approval, covers=())
        case ApprovalAnswered():
            answered = work.approvals.get(event.approval)
            if event.granted and answered is not None and answered.calls:
                first = answered.calls[0]
                _stand(work, first, standing=CallStatus.ANSWERED, covers=answered.asked.covers, answered_by=event.by)
                if event.only is not None:
                    work.only = {**work.only, first: event.only}
            work.approvals = without(work.approvals, event.approval)
        case ApprovalExpired() | ApprovalWithdrawn():
            work.approvals = without(work.approvals, event.approval)
        case TurnStarted():
            work.turn, work.turn_waits, work.interrupting = event.turn, False, False
        case TurnResumed():
            work.turn, work.turn_waits, work.parked_on = event.turn, False, ()
        case TurnEnded():
            work.turn_waits = event.status is TurnStatus.WAITING
            work.turn = event.turn if work.turn_waits else None
            work.parked_on, work.interrupting = event.waits_for, False
            if not work.turn_waits:
                work.program = None
        case InterruptAsked():
            work.interrupting = True
        case ProgramSaved():
            # The furthest point in the program counts, not the last one written.
            known = work.program
            if known is None or known.program != event.program.program or event.program.step > known.step:
                work.program = event.program
        case ProgramFinished():
            if work.program is not None and work.program.program == event.program:
                work.program = None
        case _:
            assert_never(event)


def pending_ask(open_: OpenApproval, subject: Subject) -> PendingAsk:
    """Return an open ask as people see it; it must have at least one call."""
    asked = open_.asked
    return PendingAsk(
        approval=asked.approval,
        call=open_.calls[0],
        subject=subject,
        because=tuple(dict.fromkeys(rule for cover in asked.covers for rule in cover.rules)),
        shown=asked.shown,
        asked=asked.at,
        deadline=asked.deadline,
        shared_by=len(open_.calls),
    )


def without(held: Mapping[K, V], key: K) -> Mapping[K, V]:
    """Return a copy without one key."""
    return {other: value for other, value in held.items() if other != key} if key in held else held


def _stand(work: OpenWork, call: CallId, **changes: object) -> None:
    open_call = work.calls.get(call)
    if open_call is not None:
        work.calls = {**work.calls, call: open_call._replace(**changes)}


def _close(work: OpenWork, call: CallId) -> None:
    work.permitted = tuple(other for other in work.permitted if other != call)
    closed = work.calls.get(call)
    if closed is None:
        return
    work.calls = without(work.calls, call)
    only = work.only.get(call)
    work.only = without(work.only, call)
    if closed.approval is None:
        return
    approval = work.approvals.get(closed.approval)
    if approval is not None:
        left = approval._replace(calls=tuple(other for other in approval.calls if other != call))
        work.approvals = {**work.approvals, closed.approval: left}
    elif closed.standing is CallStatus.ANSWERED:
        # An unused answer goes to the next call that had joined the ask.
        for other, heir in work.calls.items():
            if heir.approval == closed.approval and heir.standing is CallStatus.ASKED:
                answered = heir._replace(standing=CallStatus.ANSWERED, covers=closed.covers, answered_by=closed.answered_by)
                work.calls = {**work.calls, other: answered}
                if only is not None:
                    work.only = {**work.only, other: only}
                return
