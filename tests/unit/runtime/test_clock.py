"""The real clock: what sleeping until a time of day means where somebody sets the clock meanwhile."""

import asyncio

from curtainwall.model import Millis
from curtainwall.runtime import SystemClock
from tests.support.covers import covers
from tests.support.houses import run

_DAY = 86_400_000


class SetClock(SystemClock):
    """The real clock, whose time of day somebody sets."""

    def __init__(self) -> None:
        self.offset: Millis = 0

    def now(self) -> Millis:
        return super().now() + self.offset


@covers("approvals.deadline-and-the-clock")
def test_a_sleep_ends_promptly_where_the_clock_is_set_past_its_end() -> None:
    async def story() -> None:
        clock = SetClock()
        sleeping = asyncio.create_task(clock.sleep_until(clock.now() + _DAY))
        await asyncio.sleep(0)
        clock.offset = _DAY
        await sleeping

    run(story())


@covers("approvals.deadline-and-the-clock")
def test_a_sleep_takes_as_long_as_it_was_to_where_the_clock_is_set_back() -> None:
    async def story() -> None:
        clock = SetClock()
        began = clock.elapsed()
        sleeping = asyncio.create_task(clock.sleep_until(clock.now() + 200))
        await asyncio.sleep(0)
        clock.offset = -_DAY
        await sleeping
        assert clock.elapsed() - began >= 200

    run(story())
