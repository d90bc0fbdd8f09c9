"""Interrupt: stop an agent in the middle of its work, and go on with something else.

python examples/library/interrupt.py
"""

import asyncio
import json
import tempfile
from pathlib import Path

import curtainwall

begun = asyncio.Event()


@curtainwall.tool(effect="inspect")
async def long_search(words: str) -> str:
    """Search for a very long time."""
    begun.set()
    await asyncio.Event().wait()
    return f"nothing about {words}"


async def work(root: Path) -> None:
    lines = ({"tool": "app.long_search", "arguments": {"words": "milk"}}, {"text": "I stopped searching."})
    (root / "script.jsonl").write_text("\n".join(map(json.dumps, lines)))
    async with curtainwall.open_session(model=f"script:{root / 'script.jsonl'}", home=root / "home", tools=[long_search]) as session:
        await session.interrupt()
        print("nothing runs yet, so nothing was interrupted")

        searching = asyncio.create_task(session.send("search for milk"))
        await begun.wait()
        await session.interrupt()
        print(f"first: {(await searching).status}")

        reply = await session.send("what happened?")
        print(f"then: {reply.status}: {reply.text}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(work(Path(scratch).resolve()))
