"""What happens around a turn while its process works: humans are asked, calls run, budgets end, time passes. It says when to stop."""

import asyncio
import time
from contextlib import suppress
from typing import Final

from curtainwall.agents.process.terms import AgentSilent, Limits
from curtainwall.model import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalExpired,
    ApprovalId,
    ApprovalWithdrawn,
    BudgetExhausted,
    CallDropped,
    CallFinished,
    CallId,
    CallLost,
    CallPermitted,
    Feed,
    SessionId,
    TurnResult,
    TurnStatus,
    session_stream,
)

USED_UP: Final = "a budget is used up; `/budget` shows and raises it"


class Watch:
    """Follows the log of one turn. While a human is asked the time does not count, and while a call runs silence does not."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._asked: set[ApprovalId] = set()
        self._calls: set[CallId] = set()
        self._looked_at = self._heard_at = time.monotonic()
        self.worked = 0.0
        """Seconds of work, without those in which a human was waited for."""

    def heard(self) -> None:
        """Note that the process gave a sign of life."""
        self._heard_at = time.monotonic()

    async def until_stop(self, feed: Feed, session: SessionId, after: int) -> TurnResult:
        """Return, with how the turn ends, when the agent has to stop; raise `AgentSilent`; where neither, never return."""
        following = feed.follow(session_stream(session), after)
        coming = asyncio.ensure_future(anext(following))
        try:
            while True:
                await asyncio.wait((coming,), timeout=self._next_look())
                self.count()
                if coming.done():
                    event = coming.result().event
                    if isinstance(event, BudgetExhausted):
                        return TurnResult(status=TurnStatus.WAITING, failure=USED_UP)
                    self._take(event)
                    coming = asyncio.ensure_future(anext(following))
                elif self.worked >= self._limits.turn:
                    why = f"stopped after {self._limits.turn:g} seconds of work, which is the most for one turn"
                    return TurnResult(status=TurnStatus.FAILED, failure=why)
                elif self._silent_for() >= self._limits.silence:
                    raise AgentSilent(
                        f"the agent gave no sign of life for {self._limits.silence:g} seconds and was ended; send a message again"
                    )
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await coming

    def count(self) -> None:
        """Count the time since the last look."""
        now = time.monotonic()
        if self._asked:
            self._heard_at = now
        else:
            self.worked += now - self._looked_at
        self._looked_at = now

    def _take(self, event: AnyEvent) -> None:
        match event:
            case ApprovalAsked():
                self._asked.add(event.approval)
            case ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn():
                self._asked.discard(event.approval)
            case CallPermitted():
                self._calls.add(event.call)
            case CallFinished() | CallLost() | CallDropped():
                self._calls.discard(event.call)
                self.heard()
            case _:
                pass

    def _silent_for(self) -> float:
        return 0.0 if self._asked or self._calls else time.monotonic() - self._heard_at

    def _next_look(self) -> float | None:
        if self._asked:
            return None
        left = self._limits.turn - self.worked
        return max(0.0, left if self._calls else min(left, self._limits.silence - self._silent_for()))
