"""A turn of our own agent in a real process that dies at its n-th commit; with 0 it goes on wherever the log says it stopped.

Every ask is answered with yes. What the agent said last is printed at the end.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import curtainwall
from curtainwall.compose.sessions import Parts
from curtainwall.host.home import find_home
from curtainwall.model import MessageAccepted, SessionQuery, TurnStatus
from curtainwall.runtime import SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from curtainwall.tools import Runner
from tests.support.crash_script import DyingStore

NOTED = """
async def noted(name, call):
    try:
        await call
        return name
    except RuntimeError as fault:
        return name + " unknown" if "OutcomeUnknown" in str(fault) else str(fault)
"""
"""For programs of the agent's: tells of a call that it was made, or that nobody knows."""


def play(program: str, tools: Callable[[Path], Mapping[str, Runner]] | None = None, bring: Callable[[Path], None] | None = None) -> None:
    """Let the agent run a program, as the words of the command line say: `PLACE N before|after`. `bring` puts things into the workspace."""
    place, nth, when = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    script = place / "script.jsonl"
    script.write_text(json.dumps({"code": program}) + "\n" + json.dumps({"text": "That was it."}) + "\n")

    async def work() -> str:
        home = find_home()
        home.prepare()
        async with SqliteStore.open(home.root, SystemClock(), decode=lift) as store:
            known = store.index.sessions(SessionQuery())
            parts = Parts(store=DyingStore(store, nth, when) if nth else store)
            resume = known[0].session if known else None
            own = tools(place) if tools else None
            async with curtainwall.open_session(model=f"script:{script}", resume=resume, tools=own, parts=parts) as session:
                if bring:
                    bring(Path(session.info.workspace.path))
                said = any(isinstance(each.event, MessageAccepted) for each in session.timeline())
                if said and session.info.status == "ready" and session.history():
                    return session.history()[-1].text
                reply = await (session.go_on() if said else session.send("go"))
                while reply.status is TurnStatus.WAITING:
                    await session.answer(reply.pending[-1].approval, granted=True)
                    reply = await session.go_on()
                return reply.text

    print(asyncio.run(work()))
