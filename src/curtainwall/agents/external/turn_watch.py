"""Watches a turn of an external agent (approvals, budgets, time) and says when it must stop."""

import time
from typing import Final

from curtainwall.model import (
    AnyEvent,
    BudgetExhausted,
    BudgetKind,
    Feed,
    SessionId,
    TurnResult,
    TurnStatus,
    session_stream,
)
from curtainwall.session.open_work import OpenWork, take

_LOOK_EVERY: Final = 1.0

USED_UP: Final = "a budget is used up; `/budget` shows and raises it"


class TurnWatch:
    """Follows the log of one turn, which has `most` seconds of work. While a human is asked, time without a sign of life does not count."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._looked_at = time.monotonic()
        self._lived_at = self._looked_at
        self.work = OpenWork()
        """The work that is still open since the turn began."""
        self.last_sign_at = self._looked_at
        self.worked = 0.0
        """Seconds of work, without those in which the agent waited silently for a human."""

    @property
    def asked(self) -> bool:
        """Whether a human is being asked."""
        return bool(self.work.approvals)

    @property
    def left(self) -> float:
        """Seconds of work that remain for the turn."""
        return max(0.0, self._most - self.worked)

    def note_life(self) -> None:
        """Note that the agent gave a sign of life."""
        self.last_sign_at = self._lived_at = time.monotonic()

    async def until_stop(self, feed: Feed, session: SessionId, after: int) -> TurnResult:
        """Return how the turn ends once the agent has to stop; if it never has to, never return."""
        stream = session_stream(session)
        try:
            while True:
                await feed.grown(stream, after, self.next_look())
                self.count()
                for recorded in feed.read(stream, after):
                    event, after = recorded.event, recorded.seq
                    # The last allowed request may still be answered; the next one is refused.
                    if isinstance(event, BudgetExhausted) and event.kind is not BudgetKind.STEPS:
                        return TurnResult(status=TurnStatus.WAITING, failure=USED_UP)
                    self.take(event)
                if not self.left:
                    why = f"stopped after {self._most:g} seconds of work, which is the most for one turn"
                    return TurnResult(status=TurnStatus.FAILED, failure=why)
                await self.look()
        finally:
            self.count()

    def count(self) -> None:
        """Count the time since the last look."""
        now = time.monotonic()
        # One open approval must not make everything else that the agent does free.
        until = self._lived_at if self.asked else now
        self.worked += max(0.0, until - self._looked_at)
        self._looked_at = now

    def take(self, event: AnyEvent) -> None:
        """Apply an event of the log."""
        take(self.work, event)

    def next_look(self) -> float | None:
        """Return the seconds until the next look; None if only the log can bring news."""
        # While a human is asked, only signs of life use up the remaining time, so a constant check would be pointless.
        return max(self.left, _LOOK_EVERY) if self.asked else self.left

    async def look(self) -> None:
        """Do what is due now; subclasses define it."""
