"""A process of ours with a local agent, to be killed: it sends a message, or takes up the turn it finds, and says when it is done."""

import asyncio
import sys
from pathlib import Path

from curtainwall.model import SessionQuery
from curtainwall.runtime import SystemClock
from curtainwall.store import SqliteStore
from tests.support.processed import processed


async def main(home: Path, program: Path, text: str) -> None:
    """Open the one session there is, or a new one, and let its agent work until we are killed."""
    async with SqliteStore.open(home / "store", SystemClock()) as store, processed(home, program=program, stores=store) as rig:
        there = store.index.sessions(SessionQuery())
        if there:
            session = there[0].session
            rig.turns.attend(session)
        else:
            session = await rig.open()
        print(session, flush=True)
        if text:
            await rig.tell(session, text)
            print("accepted", flush=True)
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
