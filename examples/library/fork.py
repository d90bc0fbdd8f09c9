"""Fork: try something in a copy of a conversation, while the original stays as it is.

python examples/library/fork.py
"""

import asyncio
import tempfile
from pathlib import Path

import curtainwall


async def work(root: Path) -> None:
    async with curtainwall.open_session(model="demo", home=root / "home", name="original") as session:
        await session.send("write 'buy milk' to todo.txt")

        copy = await session.fork("copy")
        await copy.send("write 'buy bread' to todo.txt")
        print(f"copy: {(await copy.send('read todo.txt')).text.splitlines()[-1]}")
        print(f"original: {(await session.send('read todo.txt')).text.splitlines()[-1]}")
        print(f"the copy knows its parent: {copy.info.parent == session.id}")

        fresh = await session.reset()
        print(f"a fresh start remembers {len(fresh.history())} turns")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(work(Path(scratch).resolve()))
