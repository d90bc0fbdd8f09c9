"""Tools of your own: functions that the agent can call, judged by the same rules as every other tool.

python examples/library/own_tools.py
"""

import asyncio
import json
import tempfile
from pathlib import Path

import curtainwall

PRICES = {"milk": 1.2, "bread": 2.5}


@curtainwall.tool(effect="inspect")
def price(item: str) -> float:
    """Return the price of an item."""
    return PRICES[item]


@curtainwall.tool(effect="inspect", roles={"path": "read-path"})
def count_lines(path: Path) -> int:
    """Count the lines of a file."""
    return len(path.read_text().splitlines())


@curtainwall.tool
async def place_order(item: str) -> str:
    """Order an item. Nothing says where this sends what, so every call asks."""
    return f"ordered {item}"


def script(root: Path) -> str:
    """Write down what the model does, so that the example runs without one."""
    calls = (
        {"tool": "app.price", "arguments": {"item": "milk"}},
        {"tool": "app.count_lines", "arguments": {"path": "todo.txt"}},
        {"tool": "app.count_lines", "arguments": {"path": str(root / "private.txt")}},
        {"tool": "app.place_order", "arguments": {"item": "milk"}},
        {"text": "That was all."},
    )
    (root / "script.jsonl").write_text("\n".join(map(json.dumps, calls)))
    return f"script:{root / 'script.jsonl'}"


async def shop(root: Path) -> None:
    tools = (price, count_lines, place_order)
    async with curtainwall.open_session(workspace=root / "project", model=script(root), home=root / "home", tools=tools) as session:
        reply = await session.send("go shopping")
        while reply.status is curtainwall.TurnStatus.WAITING:
            for ask in reply.pending:
                granted = ask.subject.tool == "app.place_order"
                print(f"{ask.subject.tool} asks because of {', '.join(ask.because)}: {'yes' if granted else 'no'}")
                await session.answer(ask.approval, granted=granted)
            reply = await session.go_on()
        for diagnostic in session.diagnostics():
            if diagnostic.kind == "tool_call" and diagnostic.preview:
                print(f"{diagnostic.tool}: {diagnostic.preview}")
        print(reply.text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        (root / "project").mkdir()
        (root / "project" / "todo.txt").write_text("buy milk\nbuy bread\n")
        (root / "private.txt").write_text("a diary\n")
        # Your own program calls a tool as a plain function, without the gate.
        print(f"milk costs {price('milk')}")
        asyncio.run(shop(root))
