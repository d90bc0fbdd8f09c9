"""A program of the agent's in a real process that dies at its n-th commit: `python -m tests.support.program_crash PLACE N before|after`.

Run again with N = 0 it goes on wherever the log says it stopped. The tools do nothing but append a line to `PLACE/far`, so that every
effect can be counted there.
"""

import asyncio
import json
import sys
from pathlib import Path

import curtainwall
from curtainwall.app.home import find_home
from curtainwall.app.wiring import Parts
from curtainwall.model import CallPermitted, MessageAccepted, Place, Prepared, SessionQuery, ToolResult, TurnStatus
from curtainwall.runtime import SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from curtainwall.tools import NATIVE_TOOLS, Runner
from tests.support.crash_script import DyingStore

PROGRAM = """
import asyncio

async def noted(name, call):
    try:
        await call
        return name
    except RuntimeError as fault:
        return name + " unknown" if "OutcomeUnknown" in str(fault) else str(fault)

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


async def main(place: Path, nth: int, when: str) -> None:
    script = place / "script.jsonl"
    script.write_text(json.dumps({"code": PROGRAM}) + "\n" + json.dumps({"text": "That was it."}) + "\n")
    home = find_home()
    home.prepare()
    async with SqliteStore.open(home.root, SystemClock(), decode=lift) as store:
        known = store.index.sessions(SessionQuery())
        parts = Parts(store=DyingStore(store, nth, when) if nth else store)
        resume = known[0].session if known else None
        async with curtainwall.open_session(model=f"script:{script}", resume=resume, tools=far_side(place), parts=parts) as session:
            said = any(isinstance(each.event, MessageAccepted) for each in session.timeline())
            if said and session.info.status == "ready" and session.history():
                reply_text = session.history()[-1].text
            else:
                reply = await (session.go_on() if said else session.send("go"))
                while reply.status is TurnStatus.WAITING:
                    await session.answer(reply.pending[-1].approval, granted=True)
                    reply = await session.go_on()
                reply_text = reply.text
    print(reply_text)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
