"""A process that sends messages to a session: `python -m tests.support.sending_script HOME SESSION NAME COUNT`; prints a line for each."""

import asyncio
import sys
from pathlib import Path

from curtainwall.model import MessageId, SendMessage, SessionId, Who
from curtainwall.runtime import SessionRegistry, SystemClock
from curtainwall.session import Rules
from curtainwall.store import SqliteStore
from tests.support.houses import policy


async def main(home: Path, session: SessionId, name: str, count: int) -> None:
    rules = Rules(policy=policy())
    clock = SystemClock()

    async with SqliteStore.open(home, clock) as store, SessionRegistry(store, clock, lambda: rules) as house:

        async def send(number: int) -> None:
            word = f"{name}-{number}"
            await house.send(session, SendMessage(by=Who(name=name), message=MessageId(word), text=word), word)
            print(word, flush=True)

        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for start in range(0, count, 20):
            await asyncio.gather(*(send(number) for number in range(start, min(start + 20, count))))
        print("finished", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), SessionId(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
