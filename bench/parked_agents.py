"""500 sessions whose programs wait for a human, in one process: what each costs meanwhile, and how soon all are done once answered."""

import asyncio
import gc
import json
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from bench.agents import AtOnce, at_work, runs
from bench.disk import ROOT
from bench.measuring import Figure, Target, clock
from curtainwall.agents.builtin.language_model import AgentMessage, ProgramOutcome, Prompt
from curtainwall.compose.agents import RunningAgents
from curtainwall.host.user import local_user
from curtainwall.model import (
    AnswerApproval,
    ApprovalId,
    ApprovalQuery,
    MessageId,
    SendMessage,
    SessionId,
    TurnEnded,
    TurnStatus,
    session_stream,
)
from curtainwall.operations.open import SessionSpec, open_new

_SESSIONS = 500
_LINGER = 5.0


async def parked_agents(home: Path) -> list[Figure]:
    """Park them, count, answer all at once, and wait for the end, in a process of their own."""
    other = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.parked_agents", str(home), stdout=PIPE, cwd=ROOT)
    told, _ = await other.communicate()
    assert other.returncode == 0
    found = json.loads(told)
    return [
        Figure(
            "parked program: memory",
            found["memory"],
            "kB",
            target=Target(100),
            note=f"per session, of {_SESSIONS} that this process looks after: the resident set before the first and after the last",
        ),
        Figure(
            "parked programs: workers held",
            found["held"],
            "workers",
            target=Target(0),
            note=f"worker processes beyond the {found['pool']} that the pool keeps anyway, while {_SESSIONS} programs wait",
        ),
        Figure(
            "parked program: time", found["parked"], "ms", note="opened, asked, its program begun and saved, one session after the other"
        ),
        Figure(
            "500 answered and finished",
            found["finished"],
            "s",
            note="all answers sent at once; each program taken up where it stood, its call run, its last words said",
        ),
    ]


async def _measure(home: Path) -> None:
    async with at_work(home, AtOnce(_reply)) as (work, wanted):
        for _ in range(20):
            await _parked(work, wanted)
        await asyncio.sleep(_LINGER)
        start, pool = _resident(), _children()
        began = clock()
        sessions = [await _parked(work, wanted) for _ in range(_SESSIONS)]
        parked = clock() - began
        await asyncio.sleep(_LINGER)
        memory, held = _resident() - start, _children() - pool
        finished = await _finished(work, sessions)
    each = {"memory": memory / 1024 / _SESSIONS, "parked": parked * 1e3 / _SESSIONS}
    print(json.dumps({**each, "held": held, "pool": pool, "finished": finished}), flush=True)
    # The interpreter's threads can crash Python's own ending.
    os._exit(0)


def _reply(prompt: Prompt) -> AgentMessage:
    if isinstance(prompt.items[-1], ProgramOutcome):
        return AgentMessage(text=prompt.items[-1].text)
    return runs('before = [number * number for number in range(50)]\nawait filesystem.read_file(path="/etc/hostname")', prompt)


async def _parked(work: RunningAgents, wanted: SessionSpec) -> SessionId:
    """Open a session and let its program run until a human is asked."""
    session = await open_new(work.wired.sessions, wanted, local_user())
    work.turns.attend(session)
    house = work.wired.registry
    await work.desk.send(session, SendMessage(by=local_user(), message=MessageId(house.mint()), text="go"))
    assert await _stopped(work, session, 0) is TurnStatus.WAITING
    return session


async def _stopped(work: RunningAgents, session: SessionId, after: int) -> TurnStatus:
    async for recorded in work.wired.registry.feed.follow(session_stream(session), after):
        if isinstance(recorded.event, TurnEnded):
            return recorded.event.status
    raise AssertionError("the feed ended")


async def _finished(work: RunningAgents, sessions: list[SessionId]) -> float:
    """Answer all at once and return how many seconds later the last one was done."""
    house, wanted = work.wired.registry, set(sessions)
    rows = work.wired.store.index.approvals(ApprovalQuery(limit=2 * _SESSIONS))
    asked: dict[SessionId, ApprovalId] = {row.session: row.approval for row in rows if row.session in wanted}
    heads = {session: house.feed.head(session_stream(session)) for session in sessions}
    began = clock()
    answers = (house.send(session, AnswerApproval(by=local_user(), approval=asked[session], granted=True)) for session in sessions)
    await asyncio.gather(*answers)
    ends = await asyncio.gather(*(_stopped(work, session, heads[session]) for session in sessions))
    took = clock() - began
    assert set(ends) == {TurnStatus.DONE}
    return took


def _children() -> int:
    return sum(len(path.read_text(encoding="ascii").split()) for path in Path("/proc/self/task").glob("*/children"))


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    asyncio.run(_measure(Path(sys.argv[1])))
