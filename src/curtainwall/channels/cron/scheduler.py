"""The service that lets jobs fire: each firing once, whichever process looks, and whenever one of them dies."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from pydantic import JsonValue

from curtainwall.channels.cron.jobs import LATE, NOT_OVER, Firing, Job, JobHistories, passed_note, seen_note, set_back_note
from curtainwall.model import Clock, Feed, Millis, SessionId, Undecided

_MOST_AT_ONCE: Final = 100
_AGAIN: Final = 5_000


class Firings(Protocol):
    """What a schedule does to the house."""

    async def fire(self, firing: Firing) -> SessionId:
        """Let a job begin: one session for each firing, however often this is called for it."""
        ...

    async def note(self, data: Mapping[str, JsonValue]) -> None:
        """Write something down in the house's log."""
        ...

    def is_begun(self, session: SessionId) -> bool:
        """Tell whether a firing has come so far that nothing needs to be done for it to go on."""
        ...

    def is_over(self, session: SessionId) -> bool:
        """Tell whether a firing has come to its end: done, failed, interrupted, or its session is gone."""
        ...


class _Look(NamedTuple):
    """When a job was last looked at: the time of day, and the clock that nobody sets."""

    now: Millis
    elapsed: Millis


class Cron:
    """Every job of the configuration, each looked after by itself."""

    name = "cron"

    def __init__(self, jobs: Sequence[Job], firings: Firings, feed: Feed, clock: Clock) -> None:
        self._jobs = jobs
        self._firings = firings
        self._feed = feed
        self._clock = clock
        self._faults: dict[str, str] = {}
        self._held_up: dict[tuple[Job, Firing], str] = {}
        self._is_held_up = asyncio.Event()
        self._pasts = JobHistories(feed)
        self._looked: dict[str, _Look] = {}

    def health(self) -> str:
        """Return which jobs could not begin, and why."""
        held_up = ((job.name, why) for (job, _), why in self._held_up.items())
        return "; ".join(f"{job}: {why}" for job, why in (*self._faults.items(), *held_up))

    async def run(self) -> None:
        """Look after the jobs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for job in self._jobs:
                group.create_task(self._look_after(job), name=f"cron {job.name}")
            group.create_task(self._insist(), name="cron again")
            # A configuration without jobs is well, and waits for another one.
            await asyncio.Event().wait()

    async def _look_after(self, job: Job) -> None:
        past = self._pasts.of(job.name)
        for firing, session in sorted(past.fired.items()):
            # Where somebody died in the middle of a beginning, this completes it. What was deleted has run, and does not run again.
            if session not in past.deleted and not self._firings.is_begun(session):
                await self._fire(job, firing)
        if past.schedule != job.schedule:
            await self._firings.note(seen_note(job))
        while True:
            await self._catch_up(job)
            now = self._clock.now()
            # Looked at again within a minute: somebody may set the clock, and then no time is missed.
            await self._clock.sleep_until(min(job.schedule.next(now), now + LATE))

    async def _catch_up(self, job: Job) -> None:
        """Deal with everything that is due by now, the oldest first."""
        await self._follow_clock(job)
        now, past = self._clock.now(), self._pasts.of(job.name)
        for firing in [past.next_firing(due) for due in past.queued]:
            await self._queue(job, firing)
        # Named before anything is awaited: where another process lets the same ones fire, both mean the same firing.
        firings = [past.next_firing(due) for due in job.schedule.between(past.upto, now, _MOST_AT_ONCE)]
        early = {it for it in firings if past.is_known(it.due) and now - past.ran < _rest_after(job, it.due)}
        for firing in firings:
            is_missed = now - firing.due > LATE
            if firing in early:
                await self._firings.note(passed_note(job, firing.due, "skipped", "it ran before the clock was set back"))
            elif is_missed and (job.missed == "skip" or (job.missed == "once" and firing != firings[-1])):
                await self._firings.note(passed_note(job, firing.due, "skipped", "nobody was there when it was due"))
            else:
                await self._begin(job, firing)

    async def _follow_clock(self, job: Job) -> None:
        """Go back with a clock that was set back: the schedule goes on from the time of day that it is now."""
        now, elapsed, past = self._clock.now(), self._clock.elapsed(), self._pasts.of(job.name)
        if past.upto - now > LATE:
            before = self._looked.get(job.name)
            # What a process did not see for itself it cannot measure; then the job is taken to have run just now.
            rested = 0 if before is None or not past.fired else before.now - past.ran + elapsed - before.elapsed
            await self._firings.note(set_back_note(job, max(rested, 0)))
        self._looked[job.name] = _Look(now, elapsed)

    async def _begin(self, job: Job, firing: Firing) -> None:
        last = self._pasts.of(job.name).last
        if job.overlap == "allow" or last is None or self._firings.is_over(last):
            await self._fire(job, firing)
        elif job.overlap == "skip":
            await self._firings.note(passed_note(job, firing.due, "skipped", f"{NOT_OVER}: session {last}"))
        else:
            await self._firings.note(passed_note(job, firing.due, "queued", f"behind session {last}"))
            await self._queue(job, firing)

    async def _queue(self, job: Job, firing: Firing) -> None:
        """Let a firing begin when the one before it is over."""
        last = self._pasts.of(job.name).last
        if last is not None:
            async for _ in self._feed.changes():
                if self._firings.is_over(last):
                    break
        await self._fire(job, firing)

    async def _fire(self, job: Job, firing: Firing) -> None:
        try:
            await self._firings.fire(firing)
        except Undecided as waits:
            # It is not skipped: every step of it counts once, and what was not decided yet is tried again beside everything else.
            self._held_up[job, firing] = f"{waits.who} holds the session of a firing and has not decided yet; it is tried again"
            self._is_held_up.set()
            return
        except Exception as fault:  # noqa: BLE001 - a job that cannot begin keeps no other from beginning; health says why
            self._faults[job.name] = str(fault) or type(fault).__name__
            await self._firings.note(passed_note(job, firing.due, "skipped", f"it could not begin: {self._faults[job.name]}"))
        else:
            self._faults.pop(job.name, None)
        self._held_up.pop((job, firing), None)

    async def _insist(self) -> None:
        """Let the firings begin whose sessions another process holds, once it decides or has ended."""
        while True:
            await self._is_held_up.wait()
            self._is_held_up.clear()
            await self._clock.sleep_until(self._clock.now() + _AGAIN)
            for job, firing in tuple(self._held_up):
                await self._fire(job, firing)


def _rest_after(job: Job, due: Millis) -> Millis:
    """Return how long a job must not have run for a time of day that comes once more to count again: as long as its schedule leaves."""
    interval = job.schedule.next(due) - due
    return interval - min(LATE, interval // 2)
