"""A program of the agent's in a real process that dies at its n-th commit: `python -m tests.support.program_crash PLACE N before|after`.

The tools do nothing but append a line to `PLACE/far`, so that every effect can be counted there.
"""

from pathlib import Path

from curtainwall.model import CallPermitted, Place, Prepared, ToolResult
from curtainwall.tools import NATIVE_TOOLS, Runner
from tests.support.crashing import NOTED, play

PROGRAM = f"""
import asyncio
{NOTED}
first = await noted("a", filesystem.write_file(path="a", content="1"))
look = await filesystem.read_file(path="looked")
asked = await noted("ask", filesystem.write_file(path="/srv/elsewhere/ask", content="2"))
pair = await asyncio.gather(
    noted("left", filesystem.write_file(path="/srv/elsewhere/left", content="3")),
    noted("right", filesystem.write_file(path="/srv/elsewhere/right", content="4")),
)
last = await noted("b", filesystem.write_file(path="b", content="5"))
print([first, asked, *pair, last])
"""


def far_side(place: Path) -> dict[str, Runner]:
    async def run(prepared: Prepared, permit: CallPermitted, where: Place) -> ToolResult:
        if prepared.subject.tool == "filesystem.write_file":
            with (place / "far").open("a") as file:
                file.write(f"{Path(str(prepared.arguments['path'])).name}\n")
        return ToolResult(ok=True, value="done")

    return {spec.full_name: run for spec in NATIVE_TOOLS}


if __name__ == "__main__":
    play(PROGRAM, tools=far_side)
