"""A process that opens or takes up a session with hooks, and is killed where the test wants: `lifecycle_process.py HOME WHAT [SESSION]`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from curtainwall.compose.gate import open_gate, session_hooks
from curtainwall.compose.setup import load_setup
from curtainwall.model import CloseSession, Digest, Limits, Mode, OpenSession, ReadySession, SessionId, Who, Workspace

ANN = Who(name="ann")


async def work(home: Path, what: str, name: str | None) -> None:
    async with open_gate(load_setup(environ={**os.environ, "CURTAINWALL_HOME": str(home)})) as wired:
        session = SessionId(name or wired.registry.mint())
        if what.startswith("open"):
            workspace = Workspace(path=str(home.parent / "w"), own=True)
            opened = OpenSession(
                by=ANN, session=session, name="x", agent="builtin", model="demo", workspace=workspace, mode=Mode.DEFAULT, limits=Limits(),
                policy=Digest(wired.setup.policy.version),
            )  # fmt: skip
            await wired.registry.send(session, opened)
            await wired.registry.send(session, ReadySession(by=ANN))
            print(session, flush=True)
        if what == "close":
            await wired.registry.send(session, CloseSession(by=ANN, reason="done"))
        if what == "open-and-die":
            os.kill(os.getpid(), signal.SIGKILL)
        async with session_hooks(wired, session):
            pass


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None))
