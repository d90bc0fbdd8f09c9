"""A conversation: open a session in a project, send messages, and read what the agent replied.

    python examples/library/conversation.py

The examples in this folder need no key, no network and no home: each works in a directory that is removed at the end.
"""

import asyncio
import tempfile
from pathlib import Path

import curtainwall


async def converse(project: Path, home: Path) -> None:
    async with curtainwall.open_session(workspace=project, model="demo", home=home, name="example") as session:
        reply = await session.send("read todo.txt")
        print(f"1. {reply.status}: {reply.text}")

        print("2. ", end="")
        async for piece in session.stream("list the files here"):
            print(piece, end="")
        print()

        for turn in session.history():
            print(f"   turn: {turn.asked[0].text!r}, {turn.status}, calls: {turn.calls}")
        await session.close("the example is over")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        (root / "project").mkdir()
        (root / "project" / "todo.txt").write_text("buy milk\n")
        asyncio.run(converse(root / "project", root / "home"))
