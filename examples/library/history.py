"""History: everything is in the log, for this program and for those that come later; notes of your own as well.

python examples/library/history.py
"""

import asyncio
import tempfile
from pathlib import Path

import curtainwall


async def first(root: Path) -> str:
    """Work for a while, and leave the session."""
    async with curtainwall.open_session(model="demo", home=root / "home") as session:
        await session.note("ticket opened", {"ticket": 4711})
        await session.send("write 'buy milk' to todo.txt")
        # The agent knows this from now on, and does not reply to it.
        await session.inject("The shop closes at eight.")
        return session.id


async def later(root: Path, id_: str) -> None:
    """Go on where the first left off, as another program would."""
    async with curtainwall.open_session(resume=id_, home=root / "home") as session:
        await session.send("read todo.txt")
        for turn in session.history():
            print(f"turn: {turn.asked[0].text!r}, {turn.status}, {turn.calls} call(s)")
        for note in session.notes():
            print(f"note: {note.text}, {dict(note.details)}")
        for diagnostic in session.diagnostics():
            if diagnostic.tool and diagnostic.text.endswith("requested"):
                print(f"call: {diagnostic.tool}")
        kinds = [type(entry.event).__name__ for entry in session.timeline()]
        print(f"log: {len(kinds)} entries, from {kinds[0]} to {kinds[-1]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        asyncio.run(later(root, asyncio.run(first(root))))
