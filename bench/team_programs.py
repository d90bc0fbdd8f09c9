"""What a team's ask costs where a local program serves it: gate, message, turn and answer, around a program that answers at once."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.measuring import Figure, Seconds, Target, clock, interleave
from bench.processing import PROGRAM, bare, none, round_trip, started
from bench.staying import staying
from bench.team_talk import ask, rate_of
from curtainwall.compose.agents import run_agents
from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.config.agents import LOCAL
from curtainwall.host.user import local_user
from curtainwall.operations.open import SessionSpec
from curtainwall.teams.callers import OutsideCaller

_ROUNDS, _WARM_UP, _EACH, _PAIRS = 7, 2, 40, 9


async def team_programs(home: Path) -> list[Figure]:
    """One asker and one team, then nine pairs at once, then pairs that never talked."""
    async with _teams(home) as wired:
        callers = [OutsideCaller(wired.teams, wired.gate, local_user()) for _ in range(_PAIRS)]
        for number, caller in enumerate(callers):
            await ask(caller, f"team{number}")

        async def ours(_: int) -> Sequence[Seconds]:
            return [await _took(callers[0], "") for _ in range(_EACH)]

        async with await bare(home) as pipe:

            async def alone(_: int) -> Sequence[Seconds]:
                return [await round_trip(pipe) for _ in range(_EACH)]

            warm = await interleave({"ours": ours, "pipe": alone}, rounds=_ROUNDS, warm_up=_WARM_UP)
        rate = await rate_of(callers)

        async def cold(number: int) -> Sequence[Seconds]:
            return [await _took(callers[0], f"thread{number}")]

        async def start(_: int) -> Sequence[Seconds]:
            return [await started(home)]

        first = await interleave({"ours": cold, "start": start}, rounds=_ROUNDS, warm_up=1)
    return [
        Figure(
            "warm ask of a team that a local program serves",
            (warm["ours"].p50 - warm["pipe"].p50) * 1e3,
            "ms",
            warm["pipe"].p50 * 1e3,
            "the pipe's round trip",
            target=Target(2),
            note="the same ask through the whole keeper of local programs: its pool, its lock, its watch and its log",
        ),
        Figure("messages between such teams, nine pairs at once", rate, "/s", target=Target(1_000, way="at least")),
        Figure(
            "cold ask of such a team",
            (first["ours"].p50 - first["start"].p50) * 1e3,
            "ms",
            first["start"].p50 * 1e3,
            "one confined start and answer",
            target=Target(20),
        ),
    ]


async def _took(caller: OutsideCaller, thread: str) -> Seconds:
    began = clock()
    await ask(caller, "team0", thread)
    return clock() - began


@asynccontextmanager
async def _teams(home: Path) -> AsyncGenerator[GatedSessions]:
    ours = home / "home"
    ours.mkdir(mode=0o700)
    settings = (
        "[limits]\ntokens = 1_000_000_000\nsteps = 1_000_000\nseconds = 1_000_000\n"
        f'[lists]\nteams = ["*"]\n[peers]\ncompact-after = 1_000_000\n[processes]\nprogram = "{PROGRAM}"\nmost = 40\n'
    )
    for number in range(_PAIRS):
        (home / f"project{number}").mkdir()
        settings += f'[teams.team{number}]\nproject = "{home}/project{number}"\nagent = "{LOCAL}"\n'
    (ours / "config.toml").write_text(settings, encoding="utf-8")
    # The stand-in asks no model, but nothing starts without a key for one.
    os.environ.setdefault("ANTHROPIC_API_KEY", "sk-ant-bench-0123456789abcdefghijklmnop")
    async with AsyncExitStack() as stack:
        wired = await stack.enter_async_context(open_gate(load_setup(environ={**os.environ, "CURTAINWALL_HOME": str(ours)})))
        await stack.enter_async_context(run_agents(wired, none, SessionSpec("auto", agent=LOCAL)))
        stack.enter_context(staying(wired.store))
        yield wired
