"""The processes of all sessions: never more than allowed, a busy one never ended, the one that rested longest first."""

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
    """A session's place in the pool, with a process in it or none."""

    session: SessionId
    running: RunningProcess | None = None
    is_busy: bool = False
    rested_at: float = 0.0
    failures: int = 0
    """How often in a row its process ended badly."""
    failed_at: float = 0.0
    line: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    """Whoever wants the process, in the order in which they came."""
    resting: asyncio.TimerHandle | asyncio.Task[None] | None = field(default=None, repr=False)
    ending: asyncio.Task[None] | None = field(default=None, repr=False)
    """The end of the process before; until then the conversation is locked."""

    def failed(self) -> None:
        """Note that its process ended badly."""
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
        """Return how many processes there are, those included that begin or end just now."""
        return self._ending + sum(seat.is_busy or seat.running is not None for seat in self._seats.values())

    @asynccontextmanager
    async def borrow(self, session: SessionId, tell: Notify) -> AsyncGenerator[Seat]:
        """Lend a session its seat, one turn at a time; `tell` hears where it has to be waited for."""
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
        """Start a process in a seat that is lent, in place of the one that is there."""
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
        """End the process in a seat, if there is one, and wait for the end of one that somebody else ends."""
        running, seat.running = seat.running, None
        _leave_alone(seat)
        if running is not None:
            self._ending += 1
            seat.ending = asyncio.create_task(self._ended(running, self.means.limits.grace if grace is None else grace))
        if seat.ending is not None:
            # However often whoever waits here is cancelled, the end is seen through.
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
        """End a session's process, unless it is at work."""
        seat = self._seats.get(session)
        if seat is not None and not seat.line.locked():
            await self.stop(seat)
            self._forget(seat)

    async def _admit(self, seat: Seat, tell: Notify) -> None:
        """Return when there is room for the seat; whoever came first is first."""
        _leave_alone(seat)
        if seat.running is not None and seat.running.is_alive:
            seat.is_busy = True
            return
        await self.stop(seat)
        most, is_told = self.means.limits.processes, False
        self._queue.append(seat)
        try:
            while self._queue[0] is not seat or self.alive >= most:
                if self._queue[0] is seat and await self._make_room():
                    continue
                if not is_told:
                    tell(f"{most} agents are at work already, which is the most; waiting until one of them is done")
                    is_told = True
                async with self._changed:
                    if self._queue[0] is not seat or (self.alive >= most and self._resting() is None):
                        await self._changed.wait()
            seat.is_busy = True
        finally:
            self._queue.remove(seat)
            await self._tell_waiters()

    async def _make_room(self) -> bool:
        """End the process that has had nothing to do for longest; False where all are busy."""
        oldest = self._resting()
        if oldest is None:
            return False
        # INVARIANT: between finding it at rest and taking its process out nothing else happens.
        await self.stop(oldest)
        self._forget(oldest)
        return True

    def _resting(self) -> Seat | None:
        resting = [seat for seat in self._seats.values() if seat.running is not None and not seat.line.locked()]
        return min(resting, key=lambda seat: seat.rested_at, default=None)

    def _rest(self, seat: Seat) -> None:
        def look() -> None:
            seat.resting = asyncio.create_task(self._watch(seat), name=f"agent of {seat.session} rests")

        # Most are needed again before anybody has to look after them.
        seat.resting = asyncio.get_running_loop().call_later(self._next_look(seat), look)

    async def _watch(self, seat: Seat) -> None:
        """Look after a process that has nothing to do, and end it when it is not well or has rested for long enough."""
        while seat.running is not None and seat.running.is_alive and self._next_look(seat) > 0:
            if not await seat.running.is_well(self.means.limits.health):
                break
            await asyncio.sleep(self._next_look(seat))
        if not seat.line.locked():
            await self.stop(seat)
            self._forget(seat)

    def _next_look(self, seat: Seat) -> float:
        """Return in how many seconds a process that rests has to be looked after."""
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
    """Let nobody look after a seat from here on."""
    resting, seat.resting = seat.resting, None
    if resting is not None and resting is not asyncio.current_task():
        resting.cancel()
