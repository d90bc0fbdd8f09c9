"""The first deadline among the approvals of a session, and somebody who is called when it has come."""

import asyncio
from collections.abc import Callable

from curtainwall.model import Clock, Millis
from curtainwall.session import SessionState


class Alarm:
    """Rings when it was last set to, and not when it was set to before."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self.task: asyncio.Task[None] | None = None
        self._clock = clock
        self._ring = ring

    def set(self, state: SessionState) -> None:
        """Ring at the first deadline of what is open now; where nothing has one, never."""
        if self.task is not None:
            self.task.cancel()
            self.task = None
        deadlines = [open_.asked.deadline for open_ in state.approvals.values() if open_.asked.deadline is not None]
        if deadlines:
            self.task = asyncio.create_task(self._ring_at(min(deadlines)))

    async def _ring_at(self, at: Millis) -> None:
        await self._clock.sleep_until(at)
        self._ring()
