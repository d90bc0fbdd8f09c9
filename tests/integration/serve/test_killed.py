"""`kill -9` of `serve` in full swing: nothing is lost, nothing is applied twice, and everything finishes; effects are counted far away."""

import asyncio
import os
import signal
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from curtainwall.compose.gate import GatedSessions
from curtainwall.model import (
    AgentSpoke,
    ApprovalAnswered,
    CallFinished,
    CallLost,
    CallRequested,
    MessageId,
    Mode,
    Route,
    SendMessage,
    SessionId,
    SessionQuery,
    session_stream,
)
from curtainwall.operations.open import SessionSpec, open_new
from tests.support.covers import covers
from tests.support.far_side import FarSide, post
from tests.support.ports import free_port
from tests.support.program import Program
from tests.support.serving import ANN, Home, answer, health, open_asks, script_of
from tests.support.waiting import eventually, until

WORKING, WAITING, STEPS = 50, 50, 4


async def born(wired: GatedSessions, model: str, mode: Mode) -> SessionId:
    session = await open_new(wired.sessions, SessionSpec(model, mode=mode, routes=(Route(channel="web", reference=""),)), ANN)
    await wired.registry.send(session, SendMessage(by=ANN, message=MessageId(wired.registry.mint()), text="go"))
    return session


@pytest.mark.timeout(400)
@covers("serve.survives-kill")
def test_a_hundred_sessions_and_a_burst_of_answers_survive_a_kill(program: Program) -> None:
    far, port = FarSide(), free_port()
    program.configure(
        f'[serve]\nstatus-port = {port}\n[web]\nenabled = false\n[channels.web]\noperators = ["ann"]\n'
        f'[lists]\nhosts = ["localhost:{far.server_address[1]}"]\n'
    )
    home = Home(program.environ)
    (program.scratch / "scripts").mkdir()

    def model(name: str, kind: str) -> str:
        steps = [post(f"{far.url}/{kind}/{name}/{step}") for step in range(STEPS)]
        return script_of(program.scratch / "scripts" / name, [*steps, {"text": f"{name} is done"}])

    async def scene() -> None:
        async with AsyncExitStack() as stack:
            wired = await home.open(stack)
            working = [await born(wired, model(f"w{n}", "slow"), Mode.BYPASS) for n in range(WORKING)]
            waiting = [await born(wired, model(f"a{n}", "asked"), Mode.DEFAULT) for n in range(WAITING)]
            first = program.begin("serve")
            await eventually(lambda: len(open_asks(wired)) == WAITING, 120, pause=0.05)
            await eventually(lambda: len([hit for hit in list(far.hits) if hit.startswith("/slow")]) >= WORKING, 120, pause=0.05)
            # Everyone answers at once, and in the middle of it the process is gone.
            asks = open_asks(wired)
            answers = [asyncio.create_task(answer(wired, *ask)) for ask in asks]
            await eventually(lambda: sum(task.done() for task in answers) >= 5, 120)
            os.kill(first.child.pid, signal.SIGKILL)
            first.child.wait()
            await asyncio.gather(*answers, return_exceptions=True)
            far.hurry.set()
            program.begin("serve")
            # Whoever is not sure whether the answer counted says it again.
            for ask in asks:
                await answer(wired, *ask)
            await eventually(lambda: all_ready(wired, working + waiting, answering=True), 300, pause=0.05)
            check(wired, working, waiting)

    def all_ready(wired: GatedSessions, sessions: list[SessionId], *, answering: bool) -> bool:
        rows = {row.session: row for row in wired.store.index.sessions(SessionQuery(limit=1_000))}
        if answering:
            # Later steps ask again, each for itself.
            for session, approval in open_asks(wired):
                task = asyncio.ensure_future(answer(wired, session, approval))
                task.add_done_callback(lambda done: done.exception())
        return all(rows[session].status == "ready" and rows[session].turns for session in sessions)

    def check(wired: GatedSessions, working: list[SessionId], waiting: list[SessionId]) -> None:
        assert all(count == 1 for count in far.hits.values()), {path: count for path, count in far.hits.items() if count > 1}
        for kind, sessions in (("slow", working), ("asked", waiting)):
            for number, session in enumerate(sessions):
                events = [recorded.event for recorded in wired.registry.feed.read(session_stream(session))]
                name = f"{'w' if kind == 'slow' else 'a'}{number}"
                finished = sum(isinstance(event, CallFinished) for event in events)
                lost = sum(isinstance(event, CallLost) for event in events)
                asked = sum(isinstance(event, CallRequested) for event in events)
                assert (finished + lost, asked) == (STEPS, STEPS), (session, [type(event).__name__ for event in events])
                hits = sum(far.hits[f"/{kind}/{name}/{step}"] for step in range(STEPS))
                assert finished <= hits <= finished + lost
                answered = Counter(event.approval for event in events if isinstance(event, ApprovalAnswered))
                assert all(count == 1 for count in answered.values())
                assert len(answered) == (STEPS if kind == "asked" else 0)
                assert [event.text for event in events if isinstance(event, AgentSpoke)] == [f"{name} is done"]

    try:
        home.run(scene())
    finally:
        far.close()
    until(lambda: health(port).get("status") == "ok")
