"""What a turn with a local agent costs beside the bare pipe to the same program: warm, over nine sessions at once, and cold."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

from bench import instant_agent
from bench.measuring import Figure, Rounds, Seconds, Target, clock, interleave
from bench.sample import said
from bench.staying import staying
from curtainwall.agents.builtin import LanguageModel
from curtainwall.agents.external.process import ProcessFolders, ProcessLimits, ProcessNetwork
from curtainwall.agents.external.process.launch import ProcessStart, command, confinement, prepare
from curtainwall.compose.agents import RunningAgents, run_agents
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.config.agents import LOCAL
from curtainwall.host import ConfinedProcess, start_confined
from curtainwall.host.user import local_user
from curtainwall.model import MessageId, SendMessage, SessionId, TurnEnded, TurnStatus, session_stream
from curtainwall.operations.open import SessionSpec, open_new

_ROUNDS, _WARM_UP, _EACH, _PAIRS = 9, 2, 40, 9
_COLD_ROUNDS = 5
_WANTED = SessionSpec("auto", agent=LOCAL)
PROGRAM = Path(instant_agent.__file__).resolve()


async def processing(home: Path) -> list[Figure]:
    """Turns with a program that answers at once, and the program alone in the same confinement."""
    async with _at_work(home) as work:
        asks = Asks(work, _WANTED)
        warm = await asks.opened()
        async with await bare(home) as pipe:

            async def ours(_: int) -> Sequence[Seconds]:
                return [await asks.take(warm) for _ in range(_EACH)]

            async def alone(_: int) -> Sequence[Seconds]:
                return [await round_trip(pipe) for _ in range(_EACH)]

            took = await interleave({"ours": ours, "pipe": alone}, rounds=_ROUNDS, warm_up=_WARM_UP)
        rate = await asks.rate([await asks.opened() for _ in range(_PAIRS)])

        async def cold(_: int) -> Sequence[Seconds]:
            return [await asks.take(await asks.made())]

        async def start(_: int) -> Sequence[Seconds]:
            return [await started(home)]

        chilly = await interleave({"ours": cold, "start": start}, rounds=_COLD_ROUNDS, warm_up=1)
    return _figures(took["ours"], took["pipe"], rate, chilly["ours"], chilly["start"])


class Asks:
    """Whole turns: from the message, as a channel sends it, until the log says that the turn has ended."""

    def __init__(self, work: RunningAgents, wanted: SessionSpec) -> None:
        self._work = work
        self._wanted = wanted
        self._numbers = count()
        self._by = local_user()

    async def made(self) -> SessionId:
        """Open a session that this process looks after; its agent does not live yet."""
        session = await open_new(self._work.wired.sessions, self._wanted, self._by)
        self._work.turns.attend(session)
        return session

    async def opened(self) -> SessionId:
        """Open a session and take it through a first turn."""
        session = await self.made()
        await self.take(session)
        return session

    async def take(self, session: SessionId) -> Seconds:
        """Take one turn and return how long it took."""
        house, stream = self._work.wired.registry, session_stream(session)
        message = SendMessage(by=self._by, message=MessageId(house.mint()), text=said(next(self._numbers)))
        cursor = house.feed.head(stream)
        began = clock()
        await self._work.desk.send(session, message)
        async for recorded in house.feed.follow(stream, cursor):
            if isinstance(recorded.event, TurnEnded):
                took = clock() - began
                assert recorded.event.status is TurnStatus.DONE, recorded.event.failure
                return took
        raise AssertionError("the feed ended")

    async def rate(self, sessions: Sequence[SessionId]) -> float:
        """Return how many messages a second are answered when all sessions ask at once, one message after the other."""

        async def many(session: SessionId) -> None:
            for _ in range(_EACH):
                await self.take(session)

        best = 0.0
        for _ in range(_ROUNDS):
            began = clock()
            await asyncio.gather(*(many(session) for session in sessions))
            best = max(best, len(sessions) * _EACH / (clock() - began))
        return best


@asynccontextmanager
async def _at_work(home: Path) -> AsyncGenerator[RunningAgents]:
    ours = home / "home"
    ours.mkdir(parents=True, mode=0o700)
    limits = "[limits]\ntokens = 1_000_000_000\nsteps = 1_000_000\nseconds = 1_000_000\n"
    (ours / "config.toml").write_text(f'{limits}[processes]\nprogram = "{PROGRAM}"\nmost = 40\n', encoding="utf-8")
    # The stand-in asks no model, but nothing starts without a key for one.
    os.environ.setdefault("ANTHROPIC_API_KEY", "sk-ant-bench-0123456789abcdefghijklmnop")
    async with AsyncExitStack() as stack:
        wired = await stack.enter_async_context(open_gate(load_setup(environ={**os.environ, "CURTAINWALL_HOME": str(ours)})))
        work = await stack.enter_async_context(run_agents(wired, none, _WANTED))
        stack.enter_context(staying(wired.store))
        yield work


def none(name: str) -> LanguageModel:
    """Stand in for a model where none is asked."""
    raise AssertionError(f"no model of ours is asked here, nor `{name}`")


async def bare(home: Path) -> ConfinedProcess:
    """Start the program in the same confinement, with nothing of ours around it."""
    place = home / "bare"
    folders = ProcessFolders(place / "project", place / "orientation", place / "run", place / "state", place / "locks")
    folders.workspace.mkdir(parents=True, exist_ok=True)
    prepare(folders, ProcessNetwork())
    start = ProcessStart(PROGRAM, folders, "00000000-0000-4000-8000-000000000000", is_new=True)
    return await start_confined(command(start, ProcessNetwork()), confinement(start, ProcessNetwork(), ProcessLimits()))


async def round_trip(pipe: ConfinedProcess) -> Seconds:
    """Return how long the program takes to answer."""
    line = json.dumps({"type": "user", "uuid": "x", "message": {"role": "user", "content": said(0)}}).encode() + b"\n"
    began = clock()
    pipe.stdin.write(line)
    await pipe.stdin.drain()
    while b'"type": "result"' not in await pipe.stdout.readline():
        pass
    return clock() - began


async def started(home: Path) -> Seconds:
    """Return how long it takes to start the program and to have one answer."""
    began = clock()
    async with await bare(home) as pipe:
        await round_trip(pipe)
        return clock() - began


def _figures(ours: Rounds, pipe: Rounds, rate: float, cold: Rounds, start: Rounds) -> list[Figure]:
    added = [(mine - theirs) * 1e3 for mine, theirs in zip(ours.each, pipe.each, strict=True)]
    extra = [(mine - theirs) * 1e3 for mine, theirs in zip(cold.each, start.each, strict=True)]
    return [
        Figure(
            "local agent: added to a warm ask",
            sorted(added)[len(added) // 2],
            "ms",
            pipe.p50 * 1e3,
            "the pipe's round trip",
            target=Target(2),
            note="from the message at the desk to the end of the turn in the log: two commits, all durable",
        ),
        Figure("local agents: nine sessions at once", rate, "messages/s", target=Target(1_000, way="at least")),
        Figure(
            "local agent: added to a cold ask",
            sorted(extra)[len(extra) // 2],
            "ms",
            start.p50 * 1e3,
            "one confined start and answer",
            target=Target(20),
            note="a session's first turn: its lock, its sockets, its proxy and its certificates, besides the process",
        ),
    ]
