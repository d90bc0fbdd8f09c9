"""Limits: a session stops when a budget is used up, and goes on when the program allows more.

python examples/library/limits.py
"""

import asyncio
import tempfile
from pathlib import Path

import curtainwall
from curtainwall import BudgetKind, TurnStatus


async def work(root: Path) -> None:
    limits = {"steps": 1, "dollars": 0.5}
    async with curtainwall.open_session(workspace=root / "project", model="demo", home=root / "home", limits=limits) as session:
        # Each request to the model is a step; reading a file takes two.
        reply = await session.send("read todo.txt")
        print(f"{reply.status}, used up: {', '.join(session.info.exhausted)}")
        assert reply.status is TurnStatus.WAITING
        assert not reply.pending

        await session.raise_budget(BudgetKind.STEPS, 10)
        reply = await session.go_on()
        print(f"{reply.status}: {reply.text}")
        for figure in session.budget:
            if figure.kind in limits:
                print(f"{figure.kind}: {figure.used:g} of {figure.limit:g} ({figure.basis})")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        (root / "project").mkdir()
        (root / "project" / "todo.txt").write_text("buy milk\n")
        asyncio.run(work(root))
