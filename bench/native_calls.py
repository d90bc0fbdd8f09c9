"""What a native tool costs through the gate, and how long a session takes until its agent can call anything on its socket."""

import asyncio
import gc
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from bench.measuring import Figure, Seconds, Target, clock, interleave
from bench.sample import CLOCK, open_house, open_session
from curtainwall.facts import Masker
from curtainwall.model import CallRequest
from curtainwall.runtime import SessionGate, SessionRegistry
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools, filesystem_runners
from curtainwall.tools.mcp_in import McpServer

_CALLS, _SESSIONS = 200, 100


async def native_calls(home: Path) -> list[Figure]:
    """Read a small file through the gate, and open sessions whose sockets answer."""
    workspace = home / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("bread, milk, a new lock for the gate\n" * 20, encoding="utf-8")
    masker = Masker(b"bench" * 8)
    tools = NativeTools(Catalogue(NATIVE_TOOLS), home=str(home), masker=masker, runners=filesystem_runners(masker))
    async with open_house(home / "home") as house:
        gate = SessionGate(house, tools)
        session = await open_session(house, workspace)
        request = CallRequest(tool="filesystem.read_file", arguments={"path": "notes.txt"})

        async def ours(_: int) -> Sequence[Seconds]:
            took: list[Seconds] = []
            for _ in range(_CALLS):
                began = clock()
                assert (await gate.request(session, request)).result is not None
                took.append(clock() - began)
            return took

        async def plain(_: int) -> Sequence[Seconds]:
            took: list[Seconds] = []
            for _ in range(_CALLS):
                began = clock()
                (workspace / "notes.txt").read_text(encoding="utf-8")
                took.append(clock() - began)
            return took

        took = await interleave({"ours": ours, "plain": plain})
        alone, many, memory = await _ready(house, gate, tools, home)
    reading = Figure(
        "native read_file through the gate",
        took["ours"].p50 * 1e3,
        "ms",
        took["plain"].p50 * 1e3,
        "the same file read plainly, unjudged and unlogged",
        took["ours"].to(took["plain"]),
        Target(1.2),
        "in process: the permit is durable before the call, the outcome with the next commit",
    )
    return [
        reading,
        Figure("session ready with its socket", alone * 1e3, "ms", target=Target(15), note="opened, ready, all native tools on its socket"),
        Figure("100 sessions ready", many, "s", target=Target(1), note="one after the other"),
        Figure("a ready session: memory", memory / 1024, "kB", target=Target(1024), note="resident, per session, with actor and socket"),
    ]


async def _ready(house: SessionRegistry, gate: SessionGate, tools: NativeTools, home: Path) -> tuple[Seconds, Seconds, float]:
    took: list[Seconds] = []
    async with AsyncExitStack() as stack:

        async def one(number: int) -> None:
            began = clock()
            session = await open_session(house, home / "workspace")
            door = McpServer(session, gate, house.feed, tools.catalogue.listing, CLOCK)
            await stack.enter_async_context(door.open(home / f"s{number}"))
            took.append(clock() - began)

        await one(-1)
        took.clear()
        start, began = _resident(), clock()
        for number in range(_SESSIONS):
            await one(number)
        many, memory = clock() - began, (_resident() - start) / _SESSIONS
        await asyncio.sleep(0)
    return sorted(took)[len(took) // 2], many, memory


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
