"""One alarm for the deadlines of all sessions that this process knows, in memory or not."""

import asyncio
from collections.abc import Callable, Collection, Iterable

from curtainwall.model import ApprovalId, Clock, Millis, StreamId, record

Ring = Callable[[StreamId, frozenset[ApprovalId]], bool]
"""Expires approvals of a session; returns False if that must be tried again."""

_TRY_AGAIN: Millis = 1_000
_LOOK_AGAIN = 1.0


@record
class Deadline:
    """When an open approval was asked and when it expires, as times of day."""

    approval: ApprovalId
    asked: Millis
    at: Millis


class Alarm:
    """Rings once for each approval whose deadline has come, and again only if nobody could act on it.

    A deadline is a time of day, and the clock may be set. If it is set forward, the deadline comes at once. If it is set back, the deadline
    comes after the time that was left when it was first seen here, at most as long as the ask was to stay open.
    """

    def __init__(self, clock: Clock, ring: Ring) -> None:
        self._clock = clock
        self._ring = ring
        self._changed = asyncio.Event()
        # For each approval the deadline as a time of day, and as a time on the monotonic clock.
        self._due: dict[StreamId, dict[ApprovalId, tuple[Millis, Millis]]] = {}

    def set(self, stream: StreamId, deadlines: Iterable[Deadline]) -> None:
        """Replace the deadlines of a session."""
        before = self._due.pop(stream, {})
        due = {it.approval: before.get(it.approval) or self._measure(it) for it in deadlines}
        if due:
            self._due[stream] = due
        if due.keys() - before.keys():
            self._changed.set()

    async def run(self) -> None:
        """Ring until cancelled."""
        while True:
            self._changed.clear()
            for stream, approvals in self._take_due():
                if not self._ring(stream, approvals):
                    self._try_again(stream, approvals)
            await self._wait()

    def _measure(self, deadline: Deadline) -> tuple[Millis, Millis]:
        left = min(deadline.at - self._clock.now(), deadline.at - deadline.asked)
        return deadline.at, self._clock.elapsed() + left

    def _left(self, due: tuple[Millis, Millis]) -> Millis:
        at, measured = due
        return min(at - self._clock.now(), measured - self._clock.elapsed())

    def _take_due(self) -> Collection[tuple[StreamId, frozenset[ApprovalId]]]:
        """Remove and return the approvals whose deadline has passed."""
        taken: list[tuple[StreamId, frozenset[ApprovalId]]] = []
        for stream, deadlines in tuple(self._due.items()):
            overdue = frozenset(approval for approval, due in deadlines.items() if self._left(due) <= 0)
            if overdue:
                taken.append((stream, overdue))
                self._forget(stream, overdue)
        return taken

    def _forget(self, stream: StreamId, approvals: frozenset[ApprovalId]) -> None:
        kept = {approval: due for approval, due in self._due[stream].items() if approval not in approvals}
        if kept:
            self._due[stream] = kept
        else:
            del self._due[stream]

    def _try_again(self, stream: StreamId, approvals: frozenset[ApprovalId]) -> None:
        retry_at = (self._clock.now() + _TRY_AGAIN, self._clock.elapsed() + _TRY_AGAIN)
        self._due[stream] = {**self._due.get(stream, {}), **dict.fromkeys(approvals, retry_at)}

    async def _wait(self) -> None:
        """Return when the next deadline has come, or the deadlines changed."""
        remaining = [self._left(due) for deadlines in self._due.values() for due in deadlines.values()]
        if not remaining:
            await self._changed.wait()
            return
        waits = (
            asyncio.create_task(self._changed.wait()),
            asyncio.create_task(self._clock.sleep_until(self._clock.now() + min(remaining))),
        )
        try:
            # With a bound: the clock may have been set before the sleep began.
            await asyncio.wait(waits, timeout=_LOOK_AGAIN, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
