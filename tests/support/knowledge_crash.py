"""Skill, plan and notes in a real process that dies at its n-th commit: `python -m tests.support.knowledge_crash PLACE N before|after`.

Run again with N = 0 it goes on wherever the log says it stopped, and every ask is answered with yes. Each note that is really kept is a
line of the general memory, which only grows, so what happened is counted there.
"""

import asyncio
import json
import sys
from pathlib import Path

import curtainwall
from curtainwall.app.home import find_home
from curtainwall.app.wiring import Parts
from curtainwall.model import MessageAccepted, SessionQuery, TurnStatus
from curtainwall.runtime import SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from tests.support.crash_script import DyingStore

PROGRAM = """
async def noted(name, call):
    try:
        await call
        return name
    except RuntimeError as fault:
        return name + " unknown" if "OutcomeUnknown" in str(fault) else str(fault)

told = [await noted("skill", session.load_skill(name="ship"))]
steps = [{"tool": "session.remember", "arguments": {"text": text}} for text in ("one", "two")]
told.append(await noted("plan", session.propose_plan(steps=steps)))
told.append(await noted("one", session.remember(text="one")))
told.append(await noted("two", session.remember(text="two")))
told.append(await noted("three", session.remember(text="three")))
print(told)
"""


def bring_along(workspace: Path) -> None:
    folder = workspace / ".claude" / "skills" / "ship"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text("---\nname: ship\n---\nShip it.\n")


async def main(place: Path, nth: int, when: str) -> None:
    script = place / "script.jsonl"
    script.write_text(json.dumps({"code": PROGRAM}) + "\n" + json.dumps({"text": "That was it."}) + "\n")
    home = find_home()
    home.prepare()
    async with SqliteStore.open(home.root, SystemClock(), decode=lift) as store:
        known = store.index.sessions(SessionQuery())
        parts = Parts(store=DyingStore(store, nth, when) if nth else store)
        resume = known[0].session if known else None
        async with curtainwall.open_session(model=f"script:{script}", resume=resume, parts=parts) as session:
            bring_along(Path(session.info.workspace.path))
            said = any(isinstance(each.event, MessageAccepted) for each in session.timeline())
            if said and session.info.status == "ready" and session.history():
                text = session.history()[-1].text
            else:
                reply = await (session.go_on() if said else session.send("go"))
                while reply.status is TurnStatus.WAITING:
                    await session.answer(reply.pending[-1].approval, granted=True)
                    reply = await session.go_on()
                text = reply.text
    print(text)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
