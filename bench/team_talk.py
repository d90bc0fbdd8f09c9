"""What talk between teams adds to an agent that answers at once, beside the bare pipe to that agent and bare commits to the same disk."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from pydantic import JsonValue

from bench.bare import BareLog
from bench.disk import ROOT
from bench.measuring import Figure, Seconds, Target, clock, interleave
from bench.staying import staying
from curtainwall.agents.registry import AgentRegistry
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import (
    AgentSpoke,
    CallRequest,
    MessageAccepted,
    SessionId,
    TurnAt,
    TurnResult,
    TurnStarted,
    TurnStatus,
    session_stream,
)
from curtainwall.runtime import NoHooks, Turns
from curtainwall.teams.callers import OutsideCaller
from curtainwall.teams.keeper import Keeper

_EACH = 40
_PAIRS = 9
_MANY = 60
_COLD = 4
_COMMITS = 2
_PROCESSES = min(max(2, len(os.sched_getaffinity(0))), _PAIRS)


async def team_talk(home: Path) -> list[Figure]:
    """One asker and one team, then nine pairs at once."""
    async with AsyncExitStack() as stack:
        pipe = await stack.enter_async_context(_echo())
        wired = await stack.enter_async_context(_teams(home))
        callers = [OutsideCaller(wired.teams, wired.gate, local_user()) for _ in range(_PAIRS)]
        for number, caller in enumerate(callers):
            await ask(caller, f"team{number}")

        async def ours(_number: int) -> Sequence[Seconds]:
            took: list[Seconds] = []
            for _ in range(_EACH):
                began = clock()
                await ask(callers[0], "team0")
                took.append(clock() - began)
            return took

        async def peer(_number: int) -> Sequence[Seconds]:
            took: list[Seconds] = []
            for _ in range(_EACH):
                began = clock()
                await _through(pipe, "how is it?")
                took.append(clock() - began)
            return took

        bare = BareLog(home / "bare.db")
        event = wired.registry.feed.read(session_stream(callers[0].session))[-1].event

        async def disk(_number: int) -> Sequence[Seconds]:
            took: list[Seconds] = []
            for _ in range(_EACH):
                began = clock()
                for _ in range(_COMMITS):
                    bare.commit([event])
                took.append(clock() - began)
            return took

        async def cold(number: int) -> Sequence[Seconds]:
            took: list[Seconds] = []
            for place in range(_COLD):
                began = clock()
                await ask(callers[0], "team0", f"thread{number}-{place}")
                took.append(clock() - began)
            return took

        async def start(_number: int) -> Sequence[Seconds]:
            took: list[Seconds] = []
            for _ in range(_COLD):
                began = clock()
                await _through(await stack.enter_async_context(_echo()), "how is it?")
                took.append(clock() - began)
            return took

        took = await interleave({"ours": ours, "peer": peer, "disk": disk}, rounds=7, warm_up=1)
        first = await interleave({"ours": cold, "peer": start}, rounds=5, warm_up=1)
        rate = await rate_of(callers)
        spread = await _spread_rate(home, callers)
        bare.close()
    added = (took["ours"].p50 - took["peer"].p50) * 1e3
    added_cold = (first["ours"].p50 - first["peer"].p50) * 1e3
    alone = _COMMITS / took["disk"].p50
    return [
        Figure(
            "warm ask of a team, added to the agent's own pipe",
            added,
            "ms",
            took["disk"].p50 * 1e3,
            f"{_COMMITS} bare FULL commits",
            added / (took["disk"].p50 * 1e3),
            Target(2),
            f"gate, message, turn and answer, each durable before the next: {_COMMITS} commits one after the other; "
            f"the pipe alone takes {took['peer'].p50 * 1e3:.2f} ms",
        ),
        Figure(
            "messages between teams, nine pairs at once",
            rate,
            "/s",
            alone,
            "bare FULL commits, one at a time",
            rate / alone,
            Target(1_000, way="at least"),
            "asked, answered and back in the asker's log",
        ),
        Figure(
            f"messages between teams, nine pairs at once, {_PROCESSES} processes",
            spread,
            "/s",
            alone,
            "bare FULL commits, one at a time",
            spread / alone,
            Target(1_000, way="at least"),
            "the same with the askers spread over processes on one home; all agents work in the first of them: 4 commits for "
            "an ask of another process",
        ),
        Figure(
            "cold ask of a team, added to one start of its agent",
            added_cold,
            "ms",
            first["peer"].p50 * 1e3,
            "one start and answer",
            None,
            Target(20),
            "a pair that never talked: its place, its session and its directory are made, and its agent is started",
        ),
    ]


async def rate_of(callers: Sequence[OutsideCaller]) -> float:
    """Return how many messages a second are answered when all ask at once, one question after the other."""
    best = 0.0
    for _ in range(5):
        began = clock()
        await asyncio.gather(*(talk(caller, f"team{number}") for number, caller in enumerate(callers)))
        best = max(best, len(callers) * _MANY / (clock() - began))
    return best


async def _spread_rate(home: Path, callers: Sequence[OutsideCaller]) -> float:
    """Let every process ask its share of the teams, this one included."""
    shares = [list(range(place, _PAIRS, _PROCESSES)) for place in range(_PROCESSES)]
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(_asking(home, share)) for share in shares[1:]]

        async def round_of(process: Process) -> None:
            await _through(process, "ask")

        best = 0.0
        for _ in range(5):
            began = clock()
            own = (talk(callers[number], f"team{number}") for number in shares[0])
            await asyncio.gather(*own, *(round_of(process) for process in others))
            best = max(best, _PAIRS * _MANY / (clock() - began))
    return best


async def talk(caller: OutsideCaller, team: str) -> None:
    """Ask a team many times, one question after the other."""
    for _ in range(_MANY):
        await ask(caller, team)


async def ask(caller: OutsideCaller, team: str, thread: str = "") -> None:
    """Ask a team and wait for the answer."""
    # The breaker stops the same changing call over and over, so no two questions are the same.
    arguments: dict[str, JsonValue] = {"team": team, "question": f"how is it, {os.urandom(4).hex()}?"}
    if thread:
        arguments["thread"] = thread
    answer = await caller.request(caller.session, CallRequest(tool="teams.ask", arguments=arguments))
    assert answer.result is not None, answer.verdict
    assert answer.result.ok, answer.result.value


class _Echoing:
    """An agent in a process of its own that answers at once."""

    def __init__(self, wired: GatedSessions, stack: AsyncExitStack) -> None:
        self._wired = wired
        self._stack = stack
        self._pipes: dict[SessionId, Process] = {}

    async def work(self, at: TurnAt) -> TurnResult:
        """Pass the message on and record what comes back."""
        if at.session not in self._pipes:
            self._pipes[at.session] = await self._stack.enter_async_context(_echo())
        async with self._wired.registry.hold(at.session) as actor:
            said = await _through(self._pipes[at.session], self._message(at, actor.seq))
        spoke = AgentSpoke(at=self._wired.registry.clock.now(), turn=at.turn, text=said)
        return TurnResult(status=TurnStatus.DONE, last=(spoke,))

    def _message(self, at: TurnAt, seq: int) -> str:
        told = [it.event for it in self._wired.registry.feed.read(session_stream(at.session), max(seq - 8, 0))]
        wanted = next(event.messages for event in told if isinstance(event, TurnStarted) and event.turn == at.turn)
        return next(event.text for event in told if isinstance(event, MessageAccepted) and event.message in wanted)

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Keep everything."""

    def forget(self, session: SessionId) -> None:
        """Hold on to the process."""


@asynccontextmanager
async def opened(home: Path) -> AsyncGenerator[GatedSessions]:
    """Open the house of the teams, as one process of several."""
    async with open_gate(load_setup(environ={**os.environ, "CURTAINWALL_HOME": str(home / "house")})) as wired:
        yield wired


@asynccontextmanager
async def _teams(home: Path) -> AsyncGenerator[GatedSessions]:
    place = home / "house"
    place.mkdir()
    (home / "project").mkdir()
    sections = [f'[teams.team{number}]\nproject = "{home}/project"\n' for number in range(_PAIRS)]
    settings = '[lists]\nteams = ["*"]\n[peers]\ncompact-after = 1000000\n'
    (place / "config.toml").write_text(settings + "".join(sections), encoding="utf-8")
    async with AsyncExitStack() as stack:
        wired = await stack.enter_async_context(opened(home))
        agent = _Echoing(wired, stack)
        turns = Turns(wired.registry, agent, NoHooks(), lambda _: "", wired.gate)
        stack.push_async_callback(turns.close)
        await stack.enter_async_context(Keeper(wired.teams, turns, AgentRegistry(lambda _: "echo")).at_work())
        stack.enter_context(staying(wired.store))
        yield wired


@asynccontextmanager
async def _asking(home: Path, share: Sequence[int]) -> AsyncGenerator[Process]:
    async with _started("bench.asking", str(home), *map(str, share)) as process:
        # Its sessions are opened, and each has asked once.
        await _through(process, "begin")
        yield process


def _echo() -> AbstractAsyncContextManager[Process]:
    return _started("bench.echoing")


@asynccontextmanager
async def _started(module: str, *words: str) -> AsyncGenerator[Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *words, stdin=PIPE, stdout=PIPE, cwd=ROOT)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def _through(process: Process, text: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text.encode() + b"\n")
    return (await process.stdout.readline()).decode().rstrip("\n")
