"""Services are kept running: whoever falls over rests and comes back, and nobody else notices."""

import asyncio

from curtainwall.model import Broken
from curtainwall.serve.supervisor import FIRST_PAUSE, LONGEST_PAUSE, Supervisor
from tests.support.houses import run, until


class Moody:
    """A service that falls over as often as it is told to."""

    def __init__(self, name: str, falls: int = 0, illness: str = "") -> None:
        self.name, self.falls, self.illness, self.runs, self.is_over = name, falls, illness, 0, False

    async def run(self) -> None:
        self.runs += 1
        if self.runs <= self.falls:
            raise Broken("the server is gone")
        try:
            await asyncio.Event().wait()
        finally:
            self.is_over = True

    def health(self) -> str:
        return self.illness


class Pauses:
    """Pauses that a test lets pass."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self.over.wait()


def test_a_service_that_falls_over_is_started_again_after_growing_pauses_and_says_so_meanwhile() -> None:
    async def check() -> None:
        told: list[tuple[str, str]] = []
        pauses = Pauses()
        supervisor = Supervisor(lambda name, what: told.append((name, what)), pauses)
        moody, steady = Moody("matrix", falls=9), Moody("web")
        supervisor.start([moody, steady])
        await until(lambda: pauses.asked)
        assert supervisor.health() == {"matrix": "the server is gone; it is started again in 1 s at most", "web": ""}
        pauses.over.set()
        await until(lambda: moody.runs == 10)
        assert pauses.asked == [FIRST_PAUSE, 2, 4, 8, 16, 32, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
        assert supervisor.health() == {"matrix": "", "web": ""}
        assert supervisor.restarts() == {"matrix": 9, "web": 0}
        assert (steady.runs, len(told), told[0][0]) == (1, 9, "matrix")
        await supervisor.stop()
        assert moody.is_over
        assert steady.is_over

    run(check())


def test_a_fault_that_lasts_is_reported_once_and_so_is_its_end() -> None:
    async def check() -> None:
        told: list[tuple[str, str]] = []
        looks = asyncio.Semaphore(0)

        async def pause(_: float) -> None:
            await looks.acquire()

        supervisor = Supervisor(lambda name, what: told.append((name, what)), pause)
        moody = Moody("notify", illness="a message did not arrive")
        supervisor.start([moody])
        reports = asyncio.create_task(supervisor.report_faults())
        for _ in range(4):
            looks.release()
        await until(lambda: told)
        await until(looks.locked)
        moody.illness = ""
        for _ in range(4):
            looks.release()
        await until(lambda: len(told) > 1)
        reports.cancel()
        await supervisor.stop()
        assert told == [("notify", "a message did not arrive"), ("notify", "it is well again")]

    run(check())


def test_a_service_says_itself_how_it_is_and_can_be_exchanged() -> None:
    async def check() -> None:
        supervisor = Supervisor(lambda name, what: None)
        old, new = Moody("cron", illness="the clock went back"), Moody("cron")
        supervisor.start([old])
        supervisor.start([new])
        await until(lambda: old.runs)
        assert (supervisor.health(), new.runs) == ({"cron": "the clock went back"}, 0)
        await supervisor.stop(["cron", "nobody"])
        supervisor.start([new])
        await until(lambda: new.runs)
        assert (old.is_over, supervisor.names, supervisor.health()) == (True, ("cron",), {"cron": ""})
        await supervisor.stop()

    run(check())
