"""Which asks are due to be told, by a clock that the test turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from curtainwall.channels.asks.notices import Announcer, Notice, NoticePace
from curtainwall.model import AnswerApproval, Route
from curtainwall.runtime import SystemClock
from tests.integration.channels.test_asks import ROOM, Stage, stage, there
from tests.support.covers import covers
from tests.support.houses import ANN, run, until

DAY = 86_400_000


class TurnedClock:
    """The real time, and as much more as a test says."""

    def __init__(self) -> None:
        self.more = self.set = 0
        self.turned = asyncio.Event()
        self.sleepers = 0

    def now(self) -> int:
        return SystemClock().now() + self.more + self.set

    def elapsed(self) -> int:
        return SystemClock().elapsed() + self.more

    def entropy(self, size: int) -> bytes:
        return bytes(size)

    async def sleep_until(self, at: int) -> None:
        over = self.elapsed() + at - self.now()
        while self.now() < at and self.elapsed() < over:
            self.turned.clear()
            self.sleepers += 1
            try:
                await self.turned.wait()
            finally:
                self.sleepers -= 1

    def turn(self, millis: int) -> None:
        self.more += millis
        self.turned.set()

    def jump(self, millis: int) -> None:
        """Let somebody set the time of day; no time passes."""
        self.set += millis
        self.turned.set()


def announcer(it: Stage, clock: TurnedClock, remind: int | None = 3_600_000) -> Announcer:
    return Announcer("phone", it.board(), it.house.stores.marks, clock, NoticePace(after=60_000, remind=remind))


async def next_of(notices: AsyncIterator[Notice]) -> Notice:
    async with asyncio.timeout(90):
        return await anext(notices)


async def crashed(it: Stage, clock: TurnedClock) -> Notice:
    """Return what is told by somebody who dies before remembering it."""
    async with aclosing(announcer(it, clock).follow()) as notices:
        return await next_of(notices)


@covers("notify.remind")
def test_an_ask_is_told_when_it_has_waited_and_again_while_nobody_answers(tmp_path: Path) -> None:
    async def check() -> None:
        async with stage(tmp_path) as it:
            clock = TurnedClock()
            session = await it.session(ROOM, place=Route(channel="cron", reference="nightly@1"))
            wish = it.want(session)
            card = await until(lambda: there(it.board()))
            async with aclosing(announcer(it, clock).follow()) as notices:
                first = asyncio.create_task(next_of(notices))
                await until(lambda: clock.sleepers)
                assert not first.done(), "whoever answers at once need not be told"
                clock.turn(60_000)
                told = await first
                assert told.id == (await crashed(it, clock)).id, "what may have been told is told under the same name"
                assert (told.new, told.again, told.title) == ((card,), (), "an answer is wanted")
                assert told.text == "filesystem.read_file in cron: nightly, test"
                later = asyncio.create_task(next_of(notices))
                await until(lambda: clock.sleepers)
                clock.turn(3_600_000)
                assert (await later).title == "an answer is still wanted"
                assert later.result().id != told.id
                told_on = asyncio.create_task(next_of(notices))
                await until(lambda: clock.sleepers)
                told_on.cancel()
                await asyncio.gather(told_on, return_exceptions=True)
            # Somebody else goes on telling, after a restart.
            async with aclosing(announcer(it, clock).follow()) as notices:
                again = asyncio.create_task(next_of(notices))
                await until(lambda: clock.sleepers)
                assert not again.done()
                other = it.want(await it.session(ROOM), "/etc/passwd")
                await until(lambda: len(it.board().cards()) == 2)
                clock.turn(60_000)
                assert [found.ask.subject.raw["path"] for found in (await again).new] == ["/etc/passwd"]
                rest = asyncio.create_task(next_of(notices))
                await it.send(session, AnswerApproval(by=ANN, approval=card.approval, granted=True))
                await until(lambda: len(it.house.stores.marks.all("phone")) == 1)
                rest.cancel()
                await asyncio.gather(rest, return_exceptions=True)
                other.cancel()
            assert (await wish).result is not None

    run(check())


@covers("notify.remind")
def test_an_ask_is_told_and_told_again_in_time_where_the_clock_is_set_back(tmp_path: Path) -> None:
    async def check() -> None:
        async with stage(tmp_path) as it:
            clock = TurnedClock()
            wish = it.want(await it.session(ROOM))
            await until(lambda: there(it.board()))
            async with aclosing(announcer(it, clock).follow()) as notices:
                first = asyncio.create_task(next_of(notices))
                await until(lambda: clock.sleepers)
                clock.jump(-DAY)
                await until(lambda: clock.sleepers)
                clock.turn(60_000)
                assert (await first).title == "an answer is wanted"
                again = asyncio.create_task(next_of(notices))
                await until(lambda: clock.sleepers)
                clock.jump(-DAY)
                await until(lambda: clock.sleepers)
                clock.turn(3_600_000)
                assert (await again).title == "an answer is still wanted"
            wish.cancel()

    run(check())
