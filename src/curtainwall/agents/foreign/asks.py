"""The asks of a session as its log tells them: which calls wait for a human, which were answered while nobody was there, and how."""

from dataclasses import dataclass, field

from curtainwall.model import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalId,
    ApprovalJoined,
    CallDenied,
    CallDropped,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    CallRequested,
    Subject,
    TurnEnded,
    TurnId,
    TurnStatus,
)

_MOST_WORDS = 300


@dataclass(slots=True)
class Asked:
    """A call that a human is asked about, or was."""

    turn: TurnId | None
    subject: Subject
    approval: ApprovalId | None = None
    is_granted: bool = False


@dataclass(slots=True)
class Asks:
    """Calls that have not ended, and what became of those that a turn which broke off had waited for."""

    _calls: dict[CallId, Asked] = field(default_factory=dict[CallId, Asked])
    _parked: dict[CallId, Asked] = field(default_factory=dict[CallId, Asked])
    refusals: list[str] = field(default_factory=list[str])
    """What was refused since the turn broke off, in words for the agent."""

    def take(self, event: AnyEvent) -> None:
        """Take in the next event."""
        match event:
            case CallRequested():
                self._calls[event.call] = Asked(event.turn, event.subject)
            case ApprovalAsked() | ApprovalJoined() if event.call in self._calls:
                self._calls[event.call].approval = event.approval
            case ApprovalAnswered(granted=True):
                for asked in self._calls.values():
                    asked.is_granted = asked.is_granted or asked.approval == event.approval
            case CallDenied():
                self._refused(event)
            case CallFinished() | CallLost() | CallDropped() | CallPermitted():
                self._calls.pop(event.call, None)
            case TurnEnded():
                # A turn that waits may be taken up; what its agent had asked for is then nobody's but the agent's.
                waits = event.status is TurnStatus.WAITING
                self._parked = {call: it for call, it in self._calls.items() if it.turn == event.turn} if waits else {}
                self.refusals = self.refusals if waits else []
            case _:
                pass

    def open_in(self, turn: TurnId) -> tuple[CallId, ...]:
        """Return the calls of a turn that a human has not answered yet."""
        return tuple(call for call, it in self._calls.items() if it.turn == turn and it.approval is not None and not it.is_granted)

    def granted_in(self, turn: TurnId) -> tuple[CallId, ...]:
        """Return the calls of a turn that were granted and have not run."""
        return tuple(call for call, it in self._calls.items() if it.turn == turn and it.is_granted)

    def _refused(self, event: CallDenied) -> None:
        self._calls.pop(event.call, None)
        parked = self._parked.pop(event.call, None)
        if parked is not None:
            self.refusals.append(f"`{parked.subject.tool}` was refused: {event.verdict.reason[:_MOST_WORDS]}")
