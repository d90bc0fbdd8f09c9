"""Type checks: one session's slow programs keep no other session waiting, and nothing goes on that nobody waits for."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from pydantic import JsonValue

from curtainwall.agents.builtin.checkers import Checkers
from curtainwall.agents.builtin.language_model import Program
from curtainwall.agents.builtin.program import CallReply, CallReturned, ProgramDone, ProgramParked, ProgramRunner
from curtainwall.agents.builtin.snapshots import PendingCall, SnapshotSeal
from curtainwall.agents.builtin.stubs import stubs_for
from curtainwall.agents.builtin.workers import CodeLimits, Workers
from curtainwall.model import CallId, Live, Payload, Presence, Progress, Save, SessionId
from curtainwall.tools import NATIVE_TOOLS
from tests.support.covers import covers
from tests.support.talking import run
from tests.support.waiting import eventually, is_gone
from tests.support.workers import descendants, threads, time_used

A, B = SessionId("a"), SessionId("b")
FOR_EVER = 3600.0
# The checker looks at every way through the loop, of which there are too many.
SLOW = "\n".join(
    (
        "def g(n: int):",
        "    x = y = z = 0",
        "    while n:",
        *(f"        if n == {number}:\n            x, y, z = (y, {number}), [z], {{x: {number}}}" for number in range(60)),
        "",
    )
)
READ = 'await filesystem.read_file(path="a")'
WRITE = 'await filesystem.write_file(path="a", content="1")'
WRONG = "len(1)"
SURFACE = stubs_for(NATIVE_TOOLS)
LIMITS = CodeLimits(seconds=FOR_EVER)
# A process that has computed for so long does more than start.
_TICKS = 30


@dataclass
class Made:
    """Calls that a program made, each with success."""

    tools: list[str] = field(default_factory=list)
    may_read: asyncio.Event = field(default_factory=asyncio.Event)
    presence: Presence = field(default_factory=Presence)

    def acts(self, tool: str) -> bool:
        return tool == "filesystem.write_file"

    def mint(self) -> CallId:
        return CallId(f"c{len(self.tools)}")

    async def request(self, pending: PendingCall, save: Save) -> CallReply:
        if not self.acts(pending.tool):
            await self.may_read.wait()
        self.tools.append(pending.tool)
        return CallReturned("done")

    def knows(self, call: CallId) -> bool:
        return False

    def first_of(self, call: CallId) -> CallId:
        return call

    async def settle(self, call: CallId) -> CallReply:
        return CallReturned(None)

    async def drop(self, call: CallId) -> None:
        pass


class NoJournal:
    """Nothing that these programs do is written down."""

    async def record(self, session: SessionId, events: tuple[Progress, ...]) -> tuple[()]:
        return ()

    async def keep(self, value: JsonValue) -> Payload:
        return Payload(inline="")

    def load(self, payload: Payload) -> JsonValue:
        return None

    def publish(self, session: SessionId, live: Live) -> None:
        pass


@asynccontextmanager
async def programs(longest_check: float = FOR_EVER) -> AsyncGenerator[ProgramRunner]:
    workers = Workers(lambda: None, LIMITS, longest_check=longest_check)
    try:
        yield ProgramRunner(workers, SnapshotSeal(b"k" * 32), NoJournal())
    finally:
        await workers.close()


@asynccontextmanager
async def checkers(*, longest: float = FOR_EVER, most: int = 4) -> AsyncGenerator[Checkers]:
    async def launcher() -> None:
        return None

    opened = Checkers(launcher, LIMITS.resources, longest=longest, most=most)
    try:
        yield opened
    finally:
        await opened.close()


async def ran(programs: ProgramRunner, session: SessionId, code: str, calls: Made) -> ProgramDone | ProgramParked:
    return await programs.run(session, Program(id="p", code=code), SURFACE, calls)


def workers_of_ours() -> list[int]:
    """Return the processes that run or check programs."""
    return [pid for pid in descendants(os.getpid()) if "monty-worker" in threads(pid) and not is_gone(pid)]


async def busy_checker() -> int:
    """Wait until one of them has computed for a while, and return it."""
    return await eventually(lambda: next((pid for pid in workers_of_ours() if time_used(pid) > _TICKS), 0))


@covers("agents.a-slow-check-delays-nobody")
def test_a_program_that_takes_long_to_check_does_not_delay_the_write_of_another_session() -> None:
    async def story() -> None:
        slow, quick = Made(), Made()
        async with programs() as its:
            waiting = asyncio.create_task(ran(its, A, f"{SLOW}{WRITE}", slow))
            await busy_checker()
            assert await ran(its, B, WRITE, quick) == ProgramDone("done", ok=True)
            assert (quick.tools, slow.tools, waiting.done()) == (["filesystem.write_file"], [], False)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    run(story())


@covers("agents.a-slow-check-delays-nobody")
def test_a_session_has_one_checker_at_most_however_much_it_wants_checked() -> None:
    async def story() -> None:
        async with checkers(most=2) as its:
            slow = [its.start(A, SLOW, "") for _ in range(5)]
            await busy_checker()
            assert "Argument to function `len` is incorrect" in await its.check(B, WRONG, "")
            assert not any(task.done() for task in slow)

    run(story())


@covers("agents.a-slow-check-delays-nobody")
def test_sessions_take_turns_where_there_are_fewer_checkers() -> None:
    async def story() -> None:
        async with checkers(most=1) as its:
            many = [its.start(A, WRONG, "") for _ in range(10)]
            assert await its.start(B, WRONG, "")
            assert sum(task.done() for task in many) <= 2
            assert all(await asyncio.gather(*many))

    run(story())


@covers("agents.a-slow-check-delays-nobody")
def test_a_check_that_takes_too_long_counts_as_none_and_the_program_goes_on() -> None:
    async def story() -> None:
        calls = Made()
        async with programs(longest_check=1.0) as its:
            assert await ran(its, A, f"{SLOW}{WRITE}", calls) == ProgramDone("done", ok=True)
        assert calls.tools == ["filesystem.write_file"]
        async with checkers(longest=1.0) as its:
            checking = its.start(A, SLOW, "")
            (checker,) = await eventually(workers_of_ours)
            assert await checking == ""
            await eventually(lambda: is_gone(checker))
            for _ in range(60):
                if await its.check(A, WRONG, ""):
                    break
            else:
                pytest.fail("no other takes its place")

    run(story())


@covers("agents.a-check-ends-with-its-program")
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_check_ends_with_its_program(is_cancelled: bool) -> None:
    async def story() -> None:
        calls = Made()
        async with programs() as its:
            program = asyncio.create_task(ran(its, A, f"{SLOW}{READ}", calls))
            checker = await busy_checker()
            if is_cancelled:
                program.cancel()
            else:
                calls.may_read.set()
            ended = (await asyncio.gather(program, return_exceptions=True))[0]
            assert isinstance(ended, asyncio.CancelledError if is_cancelled else ProgramDone)
            await eventually(lambda: is_gone(checker))

    run(story())


@covers("agents.a-check-ends-with-its-program")
def test_checks_that_are_cancelled_at_any_moment_leave_room_for_others() -> None:
    async def story() -> None:
        async with checkers(most=2) as its:
            for turns in (0, 1, 2, 5, 10, 100, 1_000, 10_000, 20_000) * 2:
                checks = [its.start(session, SLOW, f"x{turns}: int") for session in (A, B)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for each in checks:
                    each.cancel()
            verdicts = await asyncio.gather(*(its.check(session, WRONG, "") for session in (A, B)))
            assert all("len" in verdict for verdict in verdicts)

    run(story())


@covers("agents.a-check-ends-with-its-program")
def test_closing_ends_a_check_that_is_under_way() -> None:
    async def story() -> None:
        async with checkers() as its:
            checking = its.start(A, SLOW, "")
            checker = await busy_checker()
        assert checking.cancelled()
        await eventually(lambda: is_gone(checker))

    run(story())
