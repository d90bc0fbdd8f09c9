"""What happens around a turn while its agent works: humans are asked, budgets run out, time passes. It says when the agent has to stop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from curtainwall.agents.container.engine import Engine
from curtainwall.agents.container.terms import Limits
from curtainwall.model import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalExpired,
    ApprovalId,
    ApprovalWithdrawn,
    BudgetExhausted,
    BudgetKind,
    CurtainwallError,
    Feed,
    SessionId,
    TurnResult,
    TurnStatus,
    session_stream,
)

_WRITTEN_EVERY: Final = 30.0
USED_UP: Final = "a budget is used up; `/budget` shows and raises it"


Write = Callable[[float], Awaitable[None]]
"""Writes down seconds of work."""


class Watch:
    """Follows the log of one turn. While a human is asked and the agent is silent, its container is paused and its time does not count."""

    def __init__(self, engine: Engine, container: str, limits: Limits, write: Write) -> None:
        self._engine = engine
        self._write = write
        self._written = 0.0
        self._container = container
        self._limits = limits
        self._asked: set[ApprovalId] = set()
        self._looked_at = time.monotonic()
        self._heard_at = time.monotonic()
        self._is_paused = False
        self.worked = 0.0
        """Seconds of work, without those in which a human was waited for."""

    def heard(self) -> None:
        """Note that the agent gave a sign of life."""
        self._heard_at = time.monotonic()

    async def until_stop(self, feed: Feed, session: SessionId, after: int) -> TurnResult:
        """Return, with how the turn ends, when the agent has to stop; where it need not, never."""
        following = feed.follow(session_stream(session), after)
        coming = asyncio.ensure_future(anext(following))
        try:
            while True:
                await asyncio.wait((coming,), timeout=self._next_look())
                self._count()
                if coming.done():
                    event = coming.result().event
                    # The last request that is allowed may still be answered; the one after it is refused.
                    if isinstance(event, BudgetExhausted) and event.kind is not BudgetKind.STEPS:
                        return TurnResult(status=TurnStatus.WAITING, failure=USED_UP)
                    self._take(event)
                    coming = asyncio.ensure_future(anext(following))
                elif self.worked >= self._limits.turn:
                    why = f"stopped after {self._limits.turn:g} seconds of work, which is the most for one turn"
                    return TurnResult(status=TurnStatus.FAILED, failure=why)
                await self._pause_or_go_on()
                if self.worked - self._written >= _WRITTEN_EVERY:
                    await self.write_down()
        finally:
            self._count()
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def write_down(self) -> None:
        """Have the work so far written down, as far as it is not."""
        seconds, self._written = max(0.0, self.worked - self._written), self.worked
        await self._write(seconds)

    def _take(self, event: AnyEvent) -> None:
        match event:
            case ApprovalAsked():
                self._asked.add(event.approval)
            case ApprovalAnswered() | ApprovalExpired() | ApprovalWithdrawn():
                self._asked.discard(event.approval)
            case _:
                pass

    def _count(self) -> None:
        now = time.monotonic()
        if not self._asked:
            self.worked += now - self._looked_at
        self._looked_at = now

    def _next_look(self) -> float | None:
        if not self._asked:
            return min(_WRITTEN_EVERY, max(0.0, self._limits.turn - self.worked))
        return None if self._is_paused else max(0.0, self._heard_at + self._limits.pause_after - time.monotonic())

    async def _pause_or_go_on(self) -> None:
        is_quiet = time.monotonic() - self._heard_at >= self._limits.pause_after
        with suppress(CurtainwallError):
            if self._asked and is_quiet and not self._is_paused:
                self._is_paused = True
                await self._engine.pause(self._container)
            elif not self._asked and self._is_paused:
                self._is_paused = False
                self.heard()
                await self._engine.resume(self._container)
