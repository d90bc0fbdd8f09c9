"""Jobs fire when they are due, once each, and the rules for what overlaps and what was missed hold."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.channels.cron import Cron, Firing, Job, Missed, Overlap, Schedule, job_histories, place_of
from curtainwall.model import HOUSE, Millis, SessionId, Undecided, Who
from curtainwall.runtime import SessionRegistry
from curtainwall.session import Rules
from curtainwall.store import MemoryDisk, MemoryStore
from tests.support.covers import covers
from tests.support.houses import ANN, FakeClock, open_session, policy, run, until

START = 1_700_000_000_000 // 3_600_000 * 3_600_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@dataclass
class Firings:
    """A house in which a firing is a session that is over when the test says so."""

    house: SessionRegistry
    running: set[SessionId] = field(default_factory=set[SessionId])
    calls: list[Millis] = field(default_factory=list[Millis])
    broken: bool = False
    held: bool = False

    async def fire(self, firing: Firing) -> SessionId:
        self.calls.append(firing.due)
        if self.broken:
            raise OSError("the project is gone")
        session = await self.house.bind(place_of(firing), SessionId(self.house.mint()), Who(name=firing.job, channel="cron"))
        if self.held:
            raise Undecided(session, 7)
        self.running.add(session)
        return session

    async def note(self, data: Mapping[str, JsonValue]) -> None:
        await self.house.note("cron", data)

    def is_begun(self, session: SessionId) -> bool:
        return False

    def is_over(self, session: SessionId) -> bool:
        return session not in self.running

    @property
    def past(self) -> tuple[dict[Millis, SessionId], dict[Millis, str]]:
        told = job_histories(recorded.event for recorded in self.house.feed.read(HOUSE)).get("hourly")
        return ({it.due: session for it, session in told.fired.items() if not it.by_hand}, told.skipped) if told else ({}, {})


class Story:
    """One machine over time: the same log, and services that come and go."""

    def __init__(self, overlap: Overlap = "skip", missed: Missed = "once") -> None:
        self.clock = FakeClock(START + MINUTE)
        self.disk = MemoryDisk()
        self.jobs = [Job("hourly", Schedule("0 * * * *"), overlap, missed)]

    @asynccontextmanager
    async def service(self) -> AsyncGenerator[Firings]:
        rules = Rules(policy=policy())
        async with SessionRegistry(MemoryStore(self.clock, self.disk), self.clock, lambda: rules) as house:
            firings = Firings(house)
            self.cron = Cron(self.jobs, firings, house.feed, self.clock)
            task = asyncio.create_task(self.cron.run())
            try:
                await until(lambda: task.done() or bool(self.clock.sleepers) or bool(firings.calls))
                yield firings
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                self.clock.sleepers.clear()

    async def comes(self, upto: Millis, seen: Callable[[], bool]) -> None:
        """Let the time come, and wait until what should happen has."""
        self.clock.advance(upto - self.clock.now())
        await until(seen)


async def by_hand_at(it: Story, now: Millis) -> SessionId:
    """Let the job fire as another process does that is told to."""
    rules = Rules(policy=policy())
    async with SessionRegistry(MemoryStore(it.clock, it.disk), it.clock, lambda: rules) as house:
        return await Firings(house).fire(Firing("hourly", now, by_hand=True))


@covers("cron.each-firing-is-one-session")
def test_a_job_fires_when_it_is_due_and_not_before() -> None:
    async def story() -> None:
        it = Story("allow")
        async with it.service() as firings:
            assert firings.past == ({}, {})
            await it.comes(START + HOUR, lambda: len(firings.past[0]) == 1)
            await it.comes(START + 2 * HOUR, lambda: len(firings.past[0]) == 2)
            assert list(firings.past[0]) == [START + HOUR, START + 2 * HOUR]

    run(story())


@covers("config.disabled-parts-do-not-run")
def test_a_disabled_job_does_not_fire_and_what_it_missed_is_not_made_up_for() -> None:
    async def story() -> None:
        at = Story(missed="all")
        async with at.service() as firings:
            await until(lambda: bool(job_histories(it.event for it in firings.house.feed.read(HOUSE))))
        [job] = at.jobs
        at.jobs = [replace(job, enabled=False), Job("yearly", Schedule("0 0 1 1 *"))]
        async with at.service() as firings:
            at.clock.advance(5 * HOUR)
            assert firings.calls == []
        at.jobs = [job]
        async with at.service() as firings:
            at.clock.advance(HOUR)
            await until(lambda: bool(firings.calls))
            assert firings.calls == [START + 6 * HOUR]

    run(story())


@covers("cron.each-firing-is-one-session")
def test_two_services_on_one_log_make_one_session_of_a_firing() -> None:
    async def story() -> None:
        it = Story("allow")
        async with it.service() as here, it.service() as there:
            await it.comes(START + HOUR, lambda: bool(here.calls) and bool(there.calls))
            assert len(here.past[0]) == 1
            assert len(here.running | there.running) == 1

    run(story())


@covers("cron.each-firing-is-one-session")
def test_what_is_run_by_hand_takes_the_place_of_no_firing_that_is_due() -> None:
    async def story() -> None:
        it = Story("allow", "all")
        async with it.service() as firings:
            by_hand = await by_hand_at(it, START + HOUR)
            await it.comes(START + HOUR, lambda: len(firings.past[0]) == 1)
            assert list(firings.past[0].values()) != [by_hand], "wanted in the very moment in which it was due"
        # Nobody is there for two hours, and then somebody who runs it by hand comes before the service.
        it.clock.advance(2 * HOUR)
        await by_hand_at(it, it.clock.now())
        async with it.service() as again:
            await until(lambda: len(again.past[0]) == 3)
            assert list(again.past[0]) == [START + HOUR, START + 2 * HOUR, START + 3 * HOUR]

    run(story())


@covers("cron.each-firing-is-one-session")
def test_a_service_that_died_in_the_middle_of_a_beginning_completes_it_at_its_next_start() -> None:
    async def story() -> None:
        it = Story("allow")
        async with it.service() as firings:
            await it.comes(START + HOUR, lambda: bool(firings.past[0]))
        async with it.service() as again:
            assert again.calls == [START + HOUR]
            assert len(again.past[0]) == 1

    run(story())


@covers("cron.each-firing-is-one-session")
def test_a_firing_whose_session_was_deleted_does_not_run_again() -> None:
    async def story() -> None:
        it = Story("allow")
        async with it.service() as firings:
            await it.comes(START + HOUR, lambda: bool(firings.past[0]))
            (session,) = firings.past[0].values()
            await open_session(firings.house, Path("/w"), session=session)
            await firings.house.delete(session, ANN)
        async with it.service() as again:
            await until(lambda: bool(it.clock.sleepers))
            assert again.calls == []

    run(story())


@covers("cron.overlap-is-as-configured")
def test_a_firing_is_left_out_while_the_one_before_is_not_over() -> None:
    async def story() -> None:
        it = Story("skip")
        async with it.service() as firings:
            await it.comes(START + HOUR, lambda: len(firings.past[0]) == 1)
            await it.comes(START + 2 * HOUR, lambda: len(firings.past[1]) == 1)
            assert "is not over" in firings.past[1][START + 2 * HOUR]
            firings.running.clear()
            await it.comes(START + 3 * HOUR, lambda: len(firings.past[0]) == 2)

    run(story())


@covers("cron.overlap-is-as-configured")
def test_a_firing_that_queues_begins_when_the_one_before_is_over_also_after_a_restart() -> None:
    async def story() -> None:
        it = Story("queue", missed="skip")
        async with it.service() as firings:
            await it.comes(START + HOUR, lambda: len(firings.past[0]) == 1)
            await it.comes(START + 2 * HOUR, lambda: bool(job_histories(r.event for r in firings.house.feed.read(HOUSE))["hourly"].queued))
            assert len(firings.past[0]) == 1
        it.clock.advance(10 * MINUTE)
        async with it.service() as again:
            assert len(again.past[0]) == 1
            again.running.clear()
            await again.note({})
            # Late as it is by now, it was never missed.
            await until(lambda: len(again.past[0]) == 2)
            assert list(again.past[0]) == [START + HOUR, START + 2 * HOUR]

    run(story())


@covers("cron.missed-firings-are-as-configured")
def test_of_the_firings_that_nobody_was_there_for_the_last_is_made_up_for_or_all_or_none() -> None:
    async def missed_day(rule: Missed) -> tuple[int, int]:
        it = Story("allow", rule)
        async with it.service() as firings:
            assert firings.past == ({}, {})
        it.clock.advance(4 * HOUR + 30 * MINUTE)
        async with it.service() as again:
            await until(lambda: sum(map(len, again.past)) == 4)
            assert rule != "once" or list(again.past[0]) == [START + 4 * HOUR]
            return len(again.past[0]), len(again.past[1])

    assert run(missed_day("once")) == (1, 3)
    assert run(missed_day("all")) == (4, 0)
    assert run(missed_day("skip")) == (0, 4)


def test_a_job_that_is_new_or_has_another_schedule_makes_up_for_nothing() -> None:
    async def story() -> None:
        it = Story("allow", "all")
        async with it.service():
            pass
        it.clock.advance(4 * HOUR + 30 * MINUTE)
        it.jobs = [Job("hourly", Schedule("15 * * * *"), "allow", "all")]
        async with it.service() as again:
            assert again.past == ({}, {})

    run(story())


@covers("cron.a-job-that-cannot-begin-is-said")
def test_a_job_that_cannot_begin_is_noted_and_the_service_goes_on() -> None:
    async def story() -> None:
        it = Story("allow")
        async with it.service() as firings:
            firings.broken = True
            await it.comes(START + HOUR, lambda: len(firings.past[1]) == 1)
            assert it.cron.health() == "hourly: the project is gone"
            firings.broken = False
            await it.comes(START + 2 * HOUR, lambda: len(firings.past[0]) == 1)
            assert it.cron.health() == ""

    run(story())


@covers("session.nobody-waits-for-a-stopped-owner")
def test_a_firing_whose_session_another_process_holds_is_not_skipped_and_begins_once_that_one_decides() -> None:
    async def story() -> None:
        it = Story("allow")
        async with it.service() as firings:
            firings.held = True
            await it.comes(START + HOUR, lambda: bool(it.cron.health()))
            assert it.cron.health() == "hourly: process 7 holds the session of a firing and has not decided yet; it is tried again"
            firings.held = False
            await it.comes(it.clock.now() + 10_000, lambda: bool(firings.running))
            await until(lambda: it.cron.health() == "")
            assert firings.calls == [START + HOUR] * 2
            (fired,), skipped = firings.past
            assert (fired, skipped) == (START + HOUR, {})

    run(story())


async def looks_again(it: Story) -> None:
    """Let a minute pass, and wait until the job was looked at in it."""
    before = {id(sleeper[-1]) for sleeper in it.clock.sleepers}
    it.clock.advance(MINUTE)
    await until(lambda: any(id(sleeper[-1]) not in before for sleeper in it.clock.sleepers))
    it.clock.sleepers[:] = [sleeper for sleeper in it.clock.sleepers if not sleeper[-1].is_set()]


async def minutes_pass(it: Story, minutes: int) -> None:
    for _ in range(minutes):
        await looks_again(it)


@covers("cron.a-clock-that-is-set-back")
@pytest.mark.parametrize("again", [False, True], ids=["while it runs", "before it starts"])
def test_a_job_goes_on_at_its_hours_after_the_clock_was_set_back_a_day(again: bool) -> None:
    async def story() -> None:
        it = Story("allow")
        async with it.service() as firings:
            for hour in range(1, 25):
                await it.comes(START + hour * HOUR, lambda hour=hour: len(firings.past[0]) == hour)
            await minutes_pass(it, 30)
            if not again:
                it.clock.jump(-DAY)
                await minutes_pass(it, 29)
                assert len(firings.calls) == 24, "what ran does not run again at once"
                await looks_again(it)
                await until(lambda: len(firings.calls) == 25)
                await minutes_pass(it, 60)
                await until(lambda: len(firings.calls) == 26)
                assert firings.calls[24:] == [START + HOUR, START + 2 * HOUR]
                assert len(firings.running) == 26, "each is a session of its own"
        if again:
            it.clock.jump(-DAY)
            async with it.service() as later:
                # Nobody knows how long ago it ran; so it is taken to have run just now.
                completed = len(later.calls)
                await minutes_pass(it, 30)
                assert later.calls[completed:] == []
                await minutes_pass(it, 60)
                await until(lambda: later.calls[completed:] == [START + 2 * HOUR])
                assert len(later.running - firings.running) == 1

    run(story())


@covers("cron.a-clock-that-is-set-back")
def test_a_job_does_not_run_again_so_soon_where_the_clock_was_set_back_a_little() -> None:
    async def story() -> None:
        it = Story("allow")
        async with it.service() as firings:
            await it.comes(START + HOUR, lambda: len(firings.past[0]) == 1)
            await minutes_pass(it, 5)
            it.clock.jump(-20 * MINUTE)
            await minutes_pass(it, 16)
            assert it.clock.now() > START + HOUR
            assert firings.calls == [START + HOUR]
            assert firings.past[1] == {START + HOUR: "it ran before the clock was set back"}
            await minutes_pass(it, 60)
            await until(lambda: firings.calls == [START + HOUR, START + 2 * HOUR])

    run(story())


@covers("cron.a-clock-that-is-set-back")
def test_a_job_runs_once_where_the_clock_jumps_ahead_and_goes_on_when_it_is_put_right() -> None:
    async def story() -> None:
        it = Story("allow")
        async with it.service() as firings:
            await it.comes(START + HOUR, lambda: len(firings.past[0]) == 1)
            await minutes_pass(it, 5)
            it.clock.jump(DAY)
            await until(lambda: len(firings.calls) == 2)
            await until(lambda: bool(it.clock.sleepers))
            it.clock.jump(-DAY)
            await minutes_pass(it, 54)
            assert len(firings.calls) == 2
            await minutes_pass(it, 62)
            await until(lambda: len(firings.calls) == 3)
            assert firings.calls == [START + HOUR, START + HOUR + DAY, START + 3 * HOUR]

    run(story())
