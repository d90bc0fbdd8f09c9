"""The processes of all sessions, up to a limit. To make room, the one idle longest is ended; a busy one never is."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from curtainwall.agents.external.process.launch import ProcessStart
from curtainwall.agents.external.process.running_process import ProcessMeans, RunningProcess
from curtainwall.model import SessionId

Notify = Callable[[str], None]

_LONGEST_BACK_OFF: Final = 30.0


@dataclass(eq=False)
class Seat:
    """A session's place in the pool, with or without a process."""

    session: SessionId
    running: RunningProcess | None = None
    is_busy: bool = False
    rested_at: float = 0.0
    failures: int = 0
    """How often in a row its process failed."""
    failed_at: float = 0.0
    line: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    """Serialises the borrowers of the process, first come, first served."""
    resting: asyncio.TimerHandle | asyncio.Task[None] | None = field(default=None, repr=False)
    ending: asyncio.Task[None] | None = field(default=None, repr=False)
    """The end of the previous process; until then the conversation is locked."""

    def failed(self) -> None:
        """Note that its process failed."""
        self.failures += 1
        self.failed_at = time.monotonic()


class ProcessPool:
    """Lends each session its seat."""

    def __init__(self, means: ProcessMeans) -> None:
        self.means = means
        self._seats: dict[SessionId, Seat] = {}
        self._queue: deque[Seat] = deque()
        self._ending = 0
        self._changed = asyncio.Condition()

    @property
    def alive(self) -> int:
        """Return how many processes there are, including those that are starting or ending."""
        return self._ending + sum(seat.is_busy or seat.running is not None for seat in self._seats.values())

    @asynccontextmanager
    async def borrow(self, session: SessionId, tell: Notify) -> AsyncGenerator[Seat]:
        """Lend a session its seat, one turn at a time; `tell` is called if the session has to wait."""
        seat = self._seats.get(session)
        if seat is None:
            seat = self._seats[session] = Seat(session)
        async with seat.line:
            await self._admit(seat, tell)
            try:
                yield seat
            finally:
                seat.is_busy = False
                seat.rested_at = time.monotonic()
                if seat.running is not None:
                    self._rest(seat)
                elif not seat.failures:
                    self._forget(seat)
                await self._tell_waiters()

    async def start(self, seat: Seat, start: ProcessStart, tell: Notify) -> RunningProcess:
        """Start a process in a borrowed seat, in place of the current one."""
        await self.stop(seat)
        wait = seat.failed_at + self._back_off(seat.failures) - time.monotonic()
        if wait > 0:
            tell(f"the agent ended badly {seat.failures} times in a row; starting it again in {wait:.0f} seconds")
            await asyncio.sleep(wait)
        running = RunningProcess(seat.session, start)
        await running.begin(self.means)
        seat.running = running
        return running

    async def stop(self, seat: Seat, *, grace: float | None = None) -> None:
        """End the process in a seat, if any; if it is already ending, wait for that."""
        running, seat.running = seat.running, None
        _leave_alone(seat)
        if running is not None:
            self._ending += 1
            seat.ending = asyncio.create_task(self._ended(running, self.means.limits.grace if grace is None else grace))
        if seat.ending is not None:
            # The process is ended even if the caller is cancelled here.
            await asyncio.shield(seat.ending)

    async def _ended(self, running: RunningProcess, grace: float) -> None:
        try:
            await running.end(grace)
        finally:
            self._ending -= 1
            await self._tell_waiters()

    async def close(self) -> None:
        """End every process."""
        await asyncio.gather(*(self.stop(seat) for seat in tuple(self._seats.values())))
        self._seats.clear()

    async def drop(self, session: SessionId) -> None:
        """End a session's process unless it is working."""
        seat = self._seats.get(session)
        if seat is not None and not seat.line.locked():
            await self.stop(seat)
            self._forget(seat)

    async def _admit(self, seat: Seat, tell: Notify) -> None:
        """Return when there is room for the seat, in order of arrival."""
        _leave_alone(seat)
        if seat.running is not None and seat.running.is_alive:
            seat.is_busy = True
            return
        await self.stop(seat)
        most, is_notified = self.means.limits.processes, False
        self._queue.append(seat)
        try:
            while self._queue[0] is not seat or self.alive >= most:
                if self._queue[0] is seat and await self._make_room():
                    continue
                if not is_notified:
                    tell(f"{most} agents are at work already, which is the most; waiting until one of them is done")
                    is_notified = True
                async with self._changed:
                    if self._queue[0] is not seat or (self.alive >= most and self._resting() is None):
                        await self._changed.wait()
            seat.is_busy = True
        finally:
            self._queue.remove(seat)
            await self._tell_waiters()

    async def _make_room(self) -> bool:
        """End the process that has been idle longest; return False if all are busy."""
        oldest = self._resting()
        if oldest is None:
            return False
        # INVARIANT: nothing else runs between finding the idle seat and taking its process out.
        await self.stop(oldest)
        self._forget(oldest)
        return True

    def _resting(self) -> Seat | None:
        resting = [seat for seat in self._seats.values() if seat.running is not None and not seat.line.locked()]
        return min(resting, key=lambda seat: seat.rested_at, default=None)

    def _rest(self, seat: Seat) -> None:
        def look() -> None:
            seat.resting = asyncio.create_task(self._watch(seat), name=f"agent of {seat.session} rests")

        # Most processes are needed again before their first check, so a timer is enough until then.
        seat.resting = asyncio.get_running_loop().call_later(self._next_look(seat), look)

    async def _watch(self, seat: Seat) -> None:
        """Check on an idle process, and end it if it does not answer or has been idle too long."""
        while seat.running is not None and seat.running.is_alive and self._next_look(seat) > 0:
            if not await seat.running.is_well(self.means.limits.health):
                break
            await asyncio.sleep(self._next_look(seat))
        if not seat.line.locked():
            await self.stop(seat)
            self._forget(seat)

    def _next_look(self, seat: Seat) -> float:
        """Return the seconds until the next check of an idle process."""
        limits = self.means.limits
        return min(limits.health, max(0.0, seat.rested_at + limits.idle - time.monotonic()))

    def _forget(self, seat: Seat) -> None:
        is_over = seat.running is None and (seat.ending is None or seat.ending.done())
        if self._seats.get(seat.session) is seat and not seat.line.locked() and is_over:
            del self._seats[seat.session]

    def _back_off(self, failures: int) -> float:
        return 0.0 if failures < 2 else min(self.means.limits.back_off * 2 ** (failures - 2), _LONGEST_BACK_OFF)

    async def _tell_waiters(self) -> None:
        if not self._queue:
            return
        async with self._changed:
            self._changed.notify_all()


def _leave_alone(seat: Seat) -> None:
    """Stop checking on a seat."""
    resting, seat.resting = seat.resting, None
    if resting is not None and resting is not asyncio.current_task():
        resting.cancel()
