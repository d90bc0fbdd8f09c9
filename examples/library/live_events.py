"""Live events: what the agent says and does, while it happens.

python examples/library/live_events.py
"""

import asyncio
import tempfile
from pathlib import Path

import curtainwall
from curtainwall import LiveContext, LiveDiagnostic, LiveSpeech, LiveTool, LiveTurn


def show(event: curtainwall.LiveEvent) -> None:
    match event:
        case LiveSpeech():
            print(f"text: {event.text!r}")
        case LiveTool():
            print(f"tool: {event.tool} {event.status} {event.preview!r}")
        case LiveContext():
            print(f"context: {'measured' if event.measured else 'estimated'}, full: {event.used > event.size}")
        case LiveTurn():
            print(f"turn: {event.status}")
        case LiveDiagnostic(diagnostic) if diagnostic.tool:
            print(f"diagnostic: {diagnostic.kind} of {diagnostic.tool}")
        case _:
            pass


async def watch(project: Path, home: Path) -> None:
    async with curtainwall.open_session(workspace=project, model="demo", home=home) as session:
        # `session.events()` shows the same without a message, until the session is closed.
        async for event in session.stream_events("read todo.txt"):
            show(event)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        (root / "project").mkdir()
        (root / "project" / "todo.txt").write_text("buy milk\n")
        asyncio.run(watch(root / "project", root / "home"))
