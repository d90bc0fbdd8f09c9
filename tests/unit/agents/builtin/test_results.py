"""Results on their way into a program: whole, and no more at once than it may hold."""

from dataclasses import dataclass, field

from pydantic import JsonValue

from curtainwall.agents.builtin.language_model import Program
from curtainwall.agents.builtin.program import CallReply, CallReturned, ProgramDone, ProgramRunner
from curtainwall.agents.builtin.snapshots import PendingCall, SnapshotSeal
from curtainwall.agents.builtin.stubs import stubs_for
from curtainwall.agents.builtin.workers import CodeLimits, Workers
from curtainwall.model import CallId, Live, Payload, Presence, Progress, Save, SessionId
from curtainwall.tools import NATIVE_TOOLS
from tests.support.covers import covers
from tests.support.talking import run


@dataclass
class LongReads:
    """Reads that return six million letters at once."""

    made: int = 0
    presence: Presence = field(default_factory=Presence)

    def acts(self, tool: str) -> bool:
        return False

    def mint(self) -> CallId:
        self.made += 1
        return CallId(f"c{self.made}")

    async def request(self, pending: PendingCall, save: Save) -> CallReply:
        return CallReturned("x" * 6_000_000)

    def knows(self, call: CallId) -> bool:
        return False

    def first_of(self, call: CallId) -> CallId:
        return call

    async def settle(self, pending: PendingCall) -> CallReply:
        raise AssertionError("nothing waits")

    async def drop(self, call: CallId) -> None:
        raise AssertionError("nothing waits")


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


async def ran(code: str) -> str:
    workers = Workers(lambda: None, CodeLimits())
    try:
        runner = ProgramRunner(workers, SnapshotSeal(b"k" * 32), NoJournal())
        ended = await runner.run(SessionId("a"), Program(id="p", code=code), stubs_for(NATIVE_TOOLS), LongReads())
    finally:
        await workers.close()
    assert isinstance(ended, ProgramDone)
    assert ended.ok, ended.text
    return ended.text


@covers("agents.what-crosses-from-a-program-is-bounded")
def test_more_results_at_once_than_a_program_may_hold_are_an_error_that_says_so() -> None:
    told = run(
        ran("""
import asyncio

async def read():
    try:
        return str(len(await filesystem.read_file(path="a")))
    except MemoryError as error:
        return str(error)

for told in await asyncio.gather(*[read() for _ in range(4)]):
    print(told)
""")
    )
    refusal = (
        "the call was made, but results that wait for the program would hold 17 MiB, more than 16; read parts, or make fewer calls at once"
    )
    assert told.splitlines() == ["6000000", "6000000", refusal, refusal]


@covers("agents.what-crosses-from-a-program-is-bounded")
def test_results_that_a_program_has_taken_no_longer_count() -> None:
    assert run(ran("sum([len(await filesystem.read_file(path='a')) for _ in range(8)])")) == "48000000"
