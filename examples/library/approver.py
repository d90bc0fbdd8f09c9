"""An approver: a function of the program answers the asks that it can decide, and leaves the others to a human.

python examples/library/approver.py
"""

import asyncio
import tempfile
from pathlib import Path

import curtainwall
from curtainwall import AskAnswer, GrantScope, PendingAsk


class Approver:
    """Lets the agent read one folder, refuses to read secrets, and passes on everything else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def decide(self, ask: PendingAsk) -> AskAnswer | None:
        path = Path(str(ask.subject.canonical.get("path", "/")))
        if ask.subject.tool == "filesystem.read_file" and path.is_relative_to(self._folder):
            if path.name == "secret.txt":
                return AskAnswer(granted=False, reason="secrets stay here")
            return AskAnswer(granted=True, scope=GrantScope.SESSION)
        return None


async def converse(root: Path) -> None:
    approver = Approver(root / "notes")
    async with curtainwall.open_session(workspace=root / "project", model="demo", home=root / "home", on_ask=approver.decide) as session:
        for message in (f"read {root}/notes/ideas.txt", f"read {root}/notes/secret.txt", "write 'hello' to greeting.txt"):
            reply = await session.send(message)
            print(f"{reply.status}: {reply.text.splitlines()[-1]}")
            for ask in reply.pending:
                print(f"a human has to decide: {ask.subject.tool}, because of {', '.join(ask.because)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        for name, text in {"project/todo.txt": "buy milk\n", "notes/ideas.txt": "paint the fence\n", "notes/secret.txt": "1234\n"}.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
        asyncio.run(converse(root))
