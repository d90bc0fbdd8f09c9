"""What a turn in a container costs beside `docker exec` of the same command in the same container, and what its first turn costs."""

import asyncio
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.measuring import Figure, Rounds, Seconds, Target, clock, interleave
from bench.processing import Asks, none
from curtainwall.compose.agents import run_agents
from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import SessionId
from curtainwall.operations.open import SessionSpec
from tests.support.docker_engine import IMAGE, DockerEngine, shared_engine

_ROUNDS, _WARM_UP, _EACH = 9, 2, 5
_COLD_ROUNDS = 5
_AGENT = "echo"
_COMMAND = "cat"
_MESSAGE = "/etc/curtainwall/message"
_LIMITS = "[limits]\ntokens = 1_000_000_000\nsteps = 1_000_000\nseconds = 1_000_000\n"


async def containing(home: Path) -> list[Figure]:
    """Turns of an agent that repeats its message, and the same program by the engine's own client, in turn."""
    if shutil.which("dockerd") is None:
        print("container: there is no Docker engine on this machine, so nothing is measured", file=sys.stderr)
        return []
    # An engine of our own, in a place with a short name, because sockets lie below it.
    with tempfile.TemporaryDirectory(prefix="cw-bench-") as place, shared_engine(Path(place) / "engine") as engine:
        async with _asks(home, engine) as asks:
            warm = await asks.opened()
            container = engine.docker("ps", "-q", "--filter", f"label=curtainwall.session={warm}")

            async def ours(_: int) -> Sequence[Seconds]:
                return [await asks.take(warm) for _ in range(_EACH)]

            async def bare(_: int) -> Sequence[Seconds]:
                return [await _docker(engine, "exec", container, "sh", "-c", f"exec {_COMMAND} <{_MESSAGE}") for _ in range(_EACH)]

            took = await interleave({"ours": ours, "exec": bare}, rounds=_ROUNDS, warm_up=_WARM_UP)

            async def first(_: int) -> Sequence[Seconds]:
                session = await asks.made()
                seconds = await asks.take(session)
                await _gone(engine, session)
                return [seconds]

            async def run(_: int) -> Sequence[Seconds]:
                return [await _docker(engine, "run", "--rm", "--network", "none", "--init", IMAGE, _COMMAND, "/dev/null")]

            cold = await interleave({"ours": first, "run": run}, rounds=_COLD_ROUNDS, warm_up=1)
    return _figures(took["ours"], took["exec"], cold["ours"], cold["run"])


@asynccontextmanager
async def _asks(home: Path, engine: DockerEngine) -> AsyncGenerator[Asks]:
    ours = home / "home"
    ours.mkdir(parents=True, mode=0o700)
    agent = f'[agents.{_AGENT}]\nimage = "{IMAGE}"\ncommand = ["{_COMMAND}"]\n'
    (ours / "config.toml").write_text(f"{_LIMITS}{agent}[containers]\nmost = 40\n", encoding="utf-8")
    os.environ["DOCKER_HOST"] = engine.address
    wanted = SessionSpec("auto", agent=_AGENT)
    async with AsyncExitStack() as stack:
        wired = await stack.enter_async_context(open_gate(load_setup(environ={**os.environ, "CURTAINWALL_HOME": str(ours)})))
        yield Asks(await stack.enter_async_context(run_agents(wired, none, wanted)), wanted)


async def _docker(engine: DockerEngine, *words: str) -> Seconds:
    """Return how long the engine's own client takes."""
    began = clock()
    client = await asyncio.create_subprocess_exec("docker", "--host", engine.address, *words, stdin=DEVNULL, stdout=PIPE)
    await client.communicate()
    assert client.returncode == 0
    return clock() - began


async def _gone(engine: DockerEngine, session: SessionId) -> None:
    """Remove a session's container, so that the machine has no more of them than before."""
    found = await asyncio.to_thread(engine.docker, "ps", "-aq", "--filter", f"label=curtainwall.session={session}")
    await asyncio.to_thread(engine.docker, "rm", "-f", found)


def _figures(ours: Rounds, bare: Rounds, cold: Rounds, run: Rounds) -> list[Figure]:
    return [
        Figure(
            "container: a turn",
            ours.p50 * 1e3,
            "ms",
            bare.p50 * 1e3,
            "`docker exec` of the same command",
            ours.to(bare),
            Target(1.2, of="ratio"),
            "from the message at the desk to the end of the turn in the log, with sockets, proxy and orientation",
        ),
        Figure(
            "container: a session's first turn",
            cold.p50 * 1e3,
            "ms",
            run.p50 * 1e3,
            "`docker run` of the same command",
            cold.to(run),
            note="the container is made and started; no target",
        ),
    ]
