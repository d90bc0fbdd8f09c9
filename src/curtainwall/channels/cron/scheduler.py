"""The service that fires jobs: each firing runs once, even with several processes and after a crash."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from pydantic import JsonValue

from curtainwall.channels.cron.jobs import LATE, NOT_OVER, Firing, Job, JobHistories, off_note, passed_note, seen_note, set_back_note
from curtainwall.model import Clock, Feed, Millis, SessionId, Undecided

_MOST_AT_ONCE: Final = 100
_AGAIN: Final = 5_000


class Firings(Protocol):
    """The parts of the runtime that a schedule uses."""

    async def fire(self, firing: Firing) -> SessionId:
        """Start a job: one session per firing, however often this is called for it."""
        ...

    async def note(self, data: Mapping[str, JsonValue]) -> None:
        """Write a note to the house log."""
        ...

    def is_begun(self, session: SessionId) -> bool:
        """Tell whether a firing has come so far that it continues without us."""
        ...

    def is_over(self, session: SessionId) -> bool:
        """Tell whether a firing has ended: done, failed, interrupted, or its session is gone."""
        ...


class _Check(NamedTuple):
    """When a job was last checked, by the wall clock and by the monotonic clock."""

    now: Millis
    elapsed: Millis


class Cron:
    """Every job of the configuration, each in its own task."""

    name = "cron"

    def __init__(self, jobs: Sequence[Job], firings: Firings, feed: Feed, clock: Clock) -> None:
        self._jobs = jobs
        self._firings = firings
        self._feed = feed
        self._clock = clock
        self._faults: dict[str, str] = {}
        self._blocked: dict[tuple[Job, Firing], str] = {}
        self._has_blocked = asyncio.Event()
        self._histories = JobHistories(feed)
        self._checked: dict[str, _Check] = {}

    def health(self) -> str:
        """Return which jobs could not start, and why."""
        blocked = ((job.name, why) for (job, _), why in self._blocked.items())
        return "; ".join(f"{job}: {why}" for job, why in (*self._faults.items(), *blocked))

    async def run(self) -> None:
        """Run the jobs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for job in self._jobs:
                if not job.enabled:
                    await self._turn_off(job)
                    continue
                group.create_task(self._run_job(job), name=f"cron {job.name}")
            group.create_task(self._retry_blocked(), name="cron again")
            # A configuration without jobs is valid; wait for the next one.
            await asyncio.Event().wait()

    async def _turn_off(self, job: Job) -> None:
        """Note once that a job is disabled, so that nothing is made up for when it is enabled again."""
        seen = self._histories.of(job.name).schedule
        if seen is not None and seen.expression:
            await self._firings.note(off_note(job))

    async def _run_job(self, job: Job) -> None:
        history = self._histories.of(job.name)
        for firing, session in sorted(history.fired.items()):
            # If a process died while starting a firing, this completes the start. A deleted session has run and does not run again.
            if session not in history.deleted and not self._firings.is_begun(session):
                await self._fire(job, firing)
        if history.schedule != job.schedule:
            await self._firings.note(seen_note(job))
        while True:
            await self._catch_up(job)
            now = self._clock.now()
            # Check again within a minute, so that no time is missed if the clock is set.
            await self._clock.sleep_until(min(job.schedule.next(now), now + LATE))

    async def _catch_up(self, job: Job) -> None:
        """Handle everything that is due by now, oldest first."""
        await self._follow_clock(job)
        now, history = self._clock.now(), self._histories.of(job.name)
        for firing in [history.next_firing(due) for due in history.queued]:
            await self._fire_after_last(job, firing)
        # Chosen before the first await, so that another process that fires them at the same time means the same firings.
        firings = [history.next_firing(due) for due in job.schedule.between(history.upto, now, _MOST_AT_ONCE)]
        early = {firing for firing in firings if history.is_known(firing.due) and now - history.ran < _rest_after(job, firing.due)}
        for firing in firings:
            is_missed = now - firing.due > LATE
            if firing in early:
                await self._firings.note(passed_note(job, firing.due, "skipped", "it ran before the clock was set back"))
            elif is_missed and (job.missed == "skip" or (job.missed == "once" and firing != firings[-1])):
                await self._firings.note(passed_note(job, firing.due, "skipped", "nobody was there when it was due"))
            else:
                await self._begin(job, firing)

    async def _follow_clock(self, job: Job) -> None:
        """Follow a clock that was set back: the schedule continues from the current time of day."""
        now, elapsed, history = self._clock.now(), self._clock.elapsed(), self._histories.of(job.name)
        if history.upto - now > LATE:
            before = self._checked.get(job.name)
            # A process cannot measure what it did not see; then assume that the job ran just now.
            rested = 0 if before is None or not history.fired else before.now - history.ran + elapsed - before.elapsed
            await self._firings.note(set_back_note(job, max(rested, 0)))
        self._checked[job.name] = _Check(now, elapsed)

    async def _begin(self, job: Job, firing: Firing) -> None:
        last = self._histories.of(job.name).last
        if job.overlap == "allow" or last is None or self._firings.is_over(last):
            await self._fire(job, firing)
        elif job.overlap == "skip":
            await self._firings.note(passed_note(job, firing.due, "skipped", f"{NOT_OVER}: session {last}"))
        else:
            await self._firings.note(passed_note(job, firing.due, "queued", f"behind session {last}"))
            await self._fire_after_last(job, firing)

    async def _fire_after_last(self, job: Job, firing: Firing) -> None:
        """Start a firing when the one before it is over."""
        last = self._histories.of(job.name).last
        if last is not None:
            async for _ in self._feed.changes():
                if self._firings.is_over(last):
                    break
        await self._fire(job, firing)

    async def _fire(self, job: Job, firing: Firing) -> None:
        try:
            await self._firings.fire(firing)
        except Undecided as waits:
            # Not skipped: every step of a firing counts once, and what is still undecided is retried in the background.
            self._blocked[job, firing] = f"{waits.who} holds the session of a firing and has not decided yet; it is tried again"
            self._has_blocked.set()
            return
        except Exception as fault:  # noqa: BLE001 - one job's failure must not keep others from starting; health says why
            self._faults[job.name] = str(fault) or type(fault).__name__
            await self._firings.note(passed_note(job, firing.due, "skipped", f"it could not begin: {self._faults[job.name]}"))
        else:
            self._faults.pop(job.name, None)
        self._blocked.pop((job, firing), None)

    async def _retry_blocked(self) -> None:
        """Start the firings whose sessions another process holds, once it decides or ends."""
        while True:
            await self._has_blocked.wait()
            self._has_blocked.clear()
            await self._clock.sleep_until(self._clock.now() + _AGAIN)
            for job, firing in tuple(self._blocked):
                await self._fire(job, firing)


def _rest_after(job: Job, due: Millis) -> Millis:
    """Return how long a job must have rested before a repeated time of day counts again: about one interval of its schedule."""
    interval = job.schedule.next(due) - due
    return interval - min(LATE, interval // 2)
