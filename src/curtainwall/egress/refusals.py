"""Refused requests on their way to whoever records them: each kind at once, repeats as a count, and never more than a few in a while."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from curtainwall.model import RefusalKind

# In one window, of each kind; what comes on top is counted.
_LISTED: Final = 10
_LONGEST_WINDOW: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was refused, without its query and body. The key that it carried is there to be masked, and nothing else."""

    kind: RefusalKind
    host: str
    method: str
    path: str
    reason: str
    key: str = field(default="", repr=False)


Report = Callable[[Sequence[tuple[Refusal, int]], int], Awaitable[None]]
"""Takes refusals, each with how often it happened, and how many more there were."""


async def unreported(refused: Sequence[tuple[Refusal, int]], more: int) -> None:
    """Keep nothing."""


class Refusals:
    """What one session's proxy refused. A window opens with the first refusal; while they go on, windows grow longer."""

    def __init__(self, report: Report, window: float) -> None:
        self._report = report
        self._shortest = self._seconds = window
        self._timer: asyncio.TimerHandle | None = None
        self._repeats: dict[Refusal, int] = {}
        self._listed: Counter[RefusalKind] = Counter()
        self._more = 0
        self._reporting: set[asyncio.Future[None]] = set()

    def note(self, refusal: Refusal) -> None:
        """Take note of a refusal; it is reported now, or counted until the window ends."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._turn_over)
        if refusal in self._repeats:
            self._repeats[refusal] += 1
        elif self._listed[refusal.kind] < _LISTED:
            self._listed[refusal.kind] += 1
            self._repeats[refusal] = 0
            self._send(((refusal, 1),), 0)
        else:
            self._more += 1

    async def close(self, seconds: float) -> None:
        """Report what was only counted, and wait so long for everything to be recorded."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flush()
        if self._reporting:
            await asyncio.wait(tuple(self._reporting), timeout=seconds)

    def _turn_over(self) -> None:
        self._timer = None
        goes_on = self._flush()
        self._seconds = min(2 * self._seconds, _LONGEST_WINDOW) if goes_on else self._shortest
        if goes_on:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._turn_over)

    def _flush(self) -> bool:
        """Report the counts of this window and forget them; tell whether there were any."""
        repeated, more = tuple((refusal, count) for refusal, count in self._repeats.items() if count), self._more
        self._repeats, self._more = {}, 0
        self._listed.clear()
        if repeated or more:
            self._send(repeated, more)
        return bool(repeated or more)

    def _send(self, refused: Sequence[tuple[Refusal, int]], more: int) -> None:
        # A task of its own: the client that was refused may be gone in a moment, and take nothing with it.
        task = asyncio.ensure_future(self._report(refused, more))
        self._reporting.add(task)
        task.add_done_callback(self._reported)

    def _reported(self, task: asyncio.Future[None]) -> None:
        self._reporting.discard(task)
        if not task.cancelled():
            task.exception()
