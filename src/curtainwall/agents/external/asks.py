"""The asks of a session as its log tells them: which calls wait for a human, which were answered while nobody was there, and how."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from curtainwall.model import AnyEvent, CallDenied, CallId, Subject, TurnEnded, TurnId, TurnStatus
from curtainwall.session.open_work import OpenWork, take

_MOST_WORDS = 300


@dataclass(slots=True)
class Asks:
    """Calls that have not ended, and what became of those that a turn which broke off had waited for."""

    _work: OpenWork = field(default_factory=OpenWork)
    _parked: Mapping[CallId, Subject] = field(default_factory=dict[CallId, Subject])
    refusals: list[str] = field(default_factory=list[str])
    """What was refused since the turn broke off, in words for the agent."""

    def take(self, event: AnyEvent) -> None:
        """Take in the next event."""
        take(self._work, event)
        if isinstance(event, CallDenied) and event.call in self._parked:
            self.refusals.append(f"`{self._parked[event.call].tool}` was refused: {event.verdict.reason[:_MOST_WORDS]}")
        if isinstance(event, TurnEnded):
            # A turn that waits may be taken up; what its agent had asked for is then nobody's but the agent's.
            waits = event.status is TurnStatus.WAITING
            calls = self._work.calls_in(event.turn) if waits else ()
            self._parked = {call: self._work.calls[call].subject for call in calls}
            self.refusals = self.refusals if waits else []

    def open_in(self, turn: TurnId) -> tuple[CallId, ...]:
        """Return the calls of a turn that a human has not answered yet."""
        return tuple(filter(self._work.is_asked, self._work.calls_in(turn)))

    def granted_in(self, turn: TurnId) -> tuple[CallId, ...]:
        """Return the calls of a turn that were granted and have not run."""
        return tuple(filter(self._work.is_granted, self._work.calls_in(turn)))
