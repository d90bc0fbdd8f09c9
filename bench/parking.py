"""What sessions cost that wait for a human: memory while their actors linger, memory after, and rows."""

import asyncio
import gc
import json
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from bench.disk import ROOT, settled_size
from bench.measuring import Figure, clock
from bench.sample import native_tools, open_house, open_session
from curtainwall.model import CallRequest
from curtainwall.runtime import SessionGate

_SESSIONS = 500
_LINGER = 5.0


async def parking(home: Path) -> list[Figure]:
    """500 sessions, each parked on one approval, in a process of their own."""
    other = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.parking", str(home), stdout=PIPE, cwd=ROOT)
    told, _ = await other.communicate()
    assert other.returncode == 0
    found = json.loads(told)
    return [
        Figure(
            "parked session: memory",
            found["after"],
            "kB",
            note=f"per session, of {_SESSIONS}, after its actor is dropped: resident set, which Python does not hand back at once",
        ),
        Figure("parked session: just asked", found["before"], "kB", note="per session while its actor lingers for the next command"),
        Figure(
            "parked session: disk",
            found["disk"],
            "kB",
            note="per session in the database: opened, ready, asked; the audit file is not counted",
        ),
        Figure("parked session: time", found["took"], "ms", note="to open it, make it ready and ask, one after the other (three commits)"),
    ]


async def _park(home: Path) -> None:
    async with open_house(home / "ours") as house:
        gate = SessionGate(house, native_tools(home))

        async def one(name: str) -> None:
            session = await open_session(house, home / "workspace")
            request = CallRequest(tool="filesystem.write_file", arguments={"path": str(home / "elsewhere" / name), "content": "x"})
            assert (await gate.request(session, request, wait=False)).waiting

        for number in range(20):
            await one(f"warm-up {number}")
        start, database = _resident(), home / "ours" / "curtainwall.db"
        before_disk = settled_size(database)
        began = clock()
        for number in range(_SESSIONS):
            await one(f"file {number}")
        took = clock() - began
        before = _resident() - start
        await asyncio.sleep(_LINGER)
        after = _resident() - start
        disk = settled_size(database) - before_disk
    each = {"before": before / 1024, "after": after / 1024, "disk": disk / 1024, "took": took * 1e3}
    print(json.dumps({name: value / _SESSIONS for name, value in each.items()}))


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    asyncio.run(_park(Path(sys.argv[1])))
