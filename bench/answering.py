"""How long an answer takes from another process to the one that waits, beside a file that is looked at twice a second."""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import JsonValue

from bench.disk import ROOT
from bench.measuring import Figure, Seconds, Target, interleave
from bench.sample import native_tools, open_house, open_session
from curtainwall.model import ApprovalAsked, CallPermitted, CallRequest, Place, Prepared, SessionId, ToolResult, ToolSpec, session_stream
from curtainwall.runtime import SessionGate, SessionRegistry
from curtainwall.tools import NativeTools

_POLL = 0.5
_EACH = 20
_PEER_EACH = 2
# An answer that has not arrived by then never will: it is counted, not waited for.
_LOST = 10.0


async def answering(home: Path) -> list[Figure]:
    """Process A waits at the gate, process B answers as soon as it hears of the approval."""
    async with open_house(home / "ours") as house, _answerer(home / "ours") as other:
        tools = _Clocked(native_tools(home))
        gate = SessionGate(house, tools)
        returned: list[Seconds] = []
        lost: list[str] = []

        async def ours(number: int) -> Sequence[Seconds]:
            # Asks in one session are counted by its breaker, so each round has its own.
            session = await open_session(house, home / "workspace")
            took: list[Seconds] = []
            for each in range(_EACH):
                after = house.stores.log.head(session_stream(session))
                outside = str(home / "elsewhere" / f"{number}-{each}.txt")
                call = asyncio.create_task(_request(gate, session, outside))
                approval = await _asked(house, session, after)
                began = await _tell(other, {"session": session, "approval": approval})
                try:
                    ended = await asyncio.wait_for(call, _LOST)
                except TimeoutError:
                    lost.append(approval)
                    continue
                took.append((tools.permitted - began) / 1e9)
                returned.append((ended - began) / 1e9)
            return took

        async def peer(number: int) -> Sequence[Seconds]:
            took: list[Seconds] = []
            for each in range(_PEER_EACH):
                file = home / f"response-{number}-{each}.json"
                waiting = asyncio.create_task(_poll(file))
                await asyncio.sleep(0)
                began = await _tell(other, {"file": str(file)})
                took.append((await waiting - began) / 1e9)
            return took

        took = await interleave({"ours": ours, "peer": peer}, rounds=7, warm_up=1)
    returned.sort()
    return [
        Figure(
            "answer from another process",
            took["ours"].p50 * 1e3,
            "ms",
            took["peer"].p50 * 1e3,
            "500 ms polling of a file",
            took["ours"].to(took["peer"]),
            Target(5),
            "from B's call of `House.send` until A's gate holds the durable permit: three commits, one after the other; B answers at once, "
            "so the poller has just looked (a person who answers at any time waits 250 ms in the middle)",
        ),
        Figure(
            "… until the call has returned",
            returned[len(returned) // 2] * 1e3,
            "ms",
            note="with the outcome of an empty call logged as well",
        ),
        Figure(
            "… answers that never arrived",
            len(lost),
            "calls",
            target=Target(0),
            note="the gate still waited 10 s after the answer was durable",
        ),
    ]


class _Clocked:
    """The native tools, with hands that only note when they are given a permit."""

    def __init__(self, tools: NativeTools) -> None:
        self._tools = tools
        self.permitted = 0

    def find(self, tool: str) -> ToolSpec | None:
        return self._tools.find(tool)

    def prepare(self, tool: str, arguments: JsonValue, place: Place) -> Prepared:
        return self._tools.prepare(tool, arguments, place)

    def masked(self, value: JsonValue) -> JsonValue:
        return self._tools.masked(value)

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        self.permitted = time.monotonic_ns()
        return ToolResult(ok=True, value="done")


async def _request(gate: SessionGate, session: SessionId, path: str) -> int:
    """Make a call that asks, and return when the gate was done with it."""
    answer = await gate.request(session, CallRequest(tool="filesystem.write_file", arguments={"path": path, "content": "x"}))
    ended = time.monotonic_ns()
    assert answer.result is not None
    return ended


async def _asked(house: SessionRegistry, session: SessionId, after: int) -> str:
    """Return the next approval that is asked for, and see that whoever asked is waiting by then."""
    async for recorded in house.feed.follow(session_stream(session), after):
        if isinstance(recorded.event, ApprovalAsked):
            await asyncio.sleep(0.01)
            return recorded.event.approval
    raise AssertionError("the feed ended")


async def _poll(file: Path) -> int:
    """Wait for a file as a poller does, and return when it was seen."""
    while not file.exists():  # noqa: ASYNC110, ASYNC240 - polling is what the peer does
        await asyncio.sleep(_POLL)
    return time.monotonic_ns()


@asynccontextmanager
async def _answerer(home: Path) -> AsyncGenerator[Process]:
    """Lend a process that has everything open and answers what it is told to."""
    other = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.answerer", str(home), stdin=PIPE, stdout=PIPE, cwd=ROOT)
    assert other.stdout is not None
    assert other.stdin is not None
    try:
        assert (await other.stdout.readline()) == b"ready\n"
        yield other
    finally:
        other.stdin.close()
        await other.wait()


async def _tell(other: Process, what: dict[str, str]) -> int:
    """Have the other process answer, and return when it began to."""
    assert other.stdin is not None
    assert other.stdout is not None
    other.stdin.write(json.dumps(what).encode() + b"\n")
    await other.stdin.drain()
    return int(await other.stdout.readline())
