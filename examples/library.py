"""A session from a Python program: a question to the offline model, an ask that the program answers itself, and what the log knows of it.

    python examples/library.py

Nothing is needed: no key, no network, no home. Everything happens in a directory that is gone afterwards.
"""

import asyncio
import os
import tempfile
from pathlib import Path

import curtainwall
from curtainwall.model import PendingAsk, TurnStatus


def may_read(ask: PendingAsk, folder: Path) -> bool:
    """Answer as this program sees fit: reading in one folder is fine, everything else is not."""
    path = Path(str(ask.subject.canonical.get("path", "/")))
    return ask.subject.tool == "filesystem.read_file" and path.is_relative_to(folder)


async def converse(project: Path, notes: Path) -> None:
    """Hold a short conversation in a project."""
    async with curtainwall.open_session(workspace=project, model="demo", name="example") as session:
        reply = await session.send("read todo.txt")
        print(f"1. {reply.status}: {reply.text}")

        # Outside the project a human is asked; here, this program is the human.
        reply = await session.send(f"read {notes / 'ideas.txt'}")
        while reply.status is TurnStatus.WAITING:
            for ask in reply.pending:
                granted = may_read(ask, notes)
                print(f"2. asked because of {', '.join(ask.because)}: {'yes' if granted else 'no'}")
                await session.answer(ask.approval, granted=granted, reason="" if granted else "only notes may be read")
            reply = await session.go_on()
        print(f"2. {reply.status}: {reply.text}")

        print("3. ", end="")
        async for piece in session.stream("list the files here"):
            print(piece, end="")
        print()

        for turn in session.history():
            print(f"   turn: {turn.asked[0].text!r}, {turn.status}, calls: {turn.calls}")
        tokens = next(figure for figure in session.budget if figure.kind == "tokens")
        print(f"   tokens: {tokens.used:.0f} of {tokens.limit:.0f} ({tokens.basis})")
        await session.close("the example is over")


def main() -> None:
    """Run in a scratch directory."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        for name, text in {"project/todo.txt": "buy milk\n", "notes/ideas.txt": "paint the fence blue\n"}.items():
            (root / name).parent.mkdir()
            (root / name).write_text(text)
        os.environ["CURTAINWALL_HOME"] = str(root / "home")
        asyncio.run(converse(root / "project", root / "notes"))


if __name__ == "__main__":
    main()
