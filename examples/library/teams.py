"""Teams: ask an agent that knows one project, in a conversation that goes on.

python examples/library/teams.py
"""

import asyncio
import tempfile
from pathlib import Path

import curtainwall


async def ask(root: Path) -> None:
    config = {"model": {"name": "demo"}, "teams": {"backend": {"project": str(root / "backend")}}}
    async with curtainwall.open_teams(home=root / "home", config=config) as teams:
        reply = await teams.ask("backend", "read api.txt")
        print(f"{reply.team}: {reply.status}: {reply.text.splitlines()[-1]}")

        await teams.notify("backend", "the frontend has moved")
        for message in await teams.history("backend"):
            print(f"message: {message['message']}, answer: {message.get('answer', 'none yet')}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        (root / "backend").mkdir()
        (root / "backend" / "api.txt").write_text("GET /prices\n")
        asyncio.run(ask(root))
