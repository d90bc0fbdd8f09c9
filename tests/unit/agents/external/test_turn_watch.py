"""The watch over a turn: which time counts as work while a human is asked."""

import asyncio
import time
from pathlib import Path

from curtainwall.agents.external import TurnWatch
from curtainwall.model import ApprovalAnswered, ApprovalAsked, ApprovalId, CallId, Digest, TurnStatus
from curtainwall.runtime import SessionGate, SystemClock
from curtainwall.store import MemoryStore
from tests.support.covers import covers
from tests.support.houses import ANN, FarSide, house, open_session, read, run, tools

ASKED = ApprovalAsked(at=1, approval=ApprovalId("a"), call=CallId("c"), digest=Digest("d"), covers=(), shown="", policy=Digest("p"))


def pass_some_time() -> None:
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass


@covers("foreign.time-beside-an-ask-counts")
def test_while_a_human_is_asked_only_time_up_to_a_sign_of_life_counts() -> None:
    watch = TurnWatch(60)
    watch.take(ASKED)
    watch.count()
    before = watch.worked
    pass_some_time()
    watch.count()
    assert watch.worked == before, "a silent agent waits"
    pass_some_time()
    watch.note_life()
    pass_some_time()
    watch.count()
    assert before + 0.015 < watch.worked, "one that speaks works"
    talked = watch.worked
    pass_some_time()
    watch.count()
    watch.take(ApprovalAnswered(at=2, approval=ASKED.approval, granted=True, by=ANN))
    assert watch.worked == talked
    pass_some_time()
    watch.count()
    assert watch.worked > talked


@covers("foreign.time-beside-an-ask-counts")
def test_an_agent_that_works_on_beside_an_open_ask_is_stopped_when_its_time_is_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(MemoryStore(SystemClock())) as here:
            session = await open_session(here, tmp_path)
            await SessionGate(here, tools(FarSide(tmp_path / "far"))).request(session, read("/etc/hostname"), wait=False)
            watch = TurnWatch(0.2)
            stopping = asyncio.create_task(watch.until_stop(here.feed, session, 0))
            while not stopping.done():
                watch.note_life()
                await asyncio.sleep(0.01)
            assert (await stopping).status is TurnStatus.FAILED

    run(story())


@covers("foreign.time-beside-an-ask-counts")
def test_a_turn_with_hardly_any_time_left_is_not_looked_at_all_the_time_while_a_human_thinks() -> None:
    watch = TurnWatch(60)
    watch.worked = 59.999_999
    watch.take(ASKED)
    assert (watch.next_look() or 60) >= 1
    watch.take(ApprovalAnswered(at=2, approval=ASKED.approval, granted=True, by=ANN))
    assert watch.next_look() == watch.left < 0.001
