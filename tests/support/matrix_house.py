"""A house that is served on Matrix alone: inside a test, or as a process of its own that can be killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from curtainwall.agents.builtin import Model
from curtainwall.agents.builtin.models.estimates import free_usage, pieces
from curtainwall.agents.builtin.talk import AgentSaid, Delta, HumanSaid, Prompt, Reply
from curtainwall.app.matrix_service import matrix_of
from curtainwall.app.openings import Wanted
from curtainwall.app.wiring import open_house, set_up
from curtainwall.app.working import AtWork, agents_at_work, default_model_of, models_of
from curtainwall.channels.matrix import Matrix, Pace
from curtainwall.model import MessageAccepted, Recorded, Route, SessionId, SessionQuery, session_stream
from tests.support.repository import ROOT
from tests.support.synapse import Synapse
from tests.support.talking import Home

QUICK = Pace(first=0.2, again=0.3, look=0.05)


def configure(home: Home, server: Synapse, *, model: str = "demo", matrix: str = "", user: str = "wall") -> None:
    """Write the configuration of a house that is somebody on a homeserver, with ann as its operator."""
    home.configure(
        f'[model]\nname = "{model}"\n[channels.matrix]\noperators = ["{server.user("ann")}"]\n[matrix]\nhomeserver = "{server.url}"\n'
        f'user = "{server.user(user)}"\ndevice = "WALL"\npassword-env = "WALL_PASSWORD"\n{matrix}\n'
    )


@dataclass
class Echo:
    """A model that says what it heard since it last spoke, word by word; a pause makes it slow."""

    pause: float = 0.0
    name: str = "echo"
    context_size: int = 1_000_000

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | Reply]:
        heard: list[str] = []
        for item in prompt.items:
            heard = [*heard, item.text] if isinstance(item, HumanSaid) else [] if isinstance(item, AgentSaid) else heard
        said = AgentSaid(text=f"heard: {' | '.join(heard)}")
        for piece in pieces(said.text):
            yield Delta(piece)
            await asyncio.sleep(self.pause)
        yield Reply(said, {"said": said.text}, free_usage(prompt, said), "end_turn")


@dataclass
class Served:
    """A house at work, its channel, and what the channel reported."""

    work: AtWork
    matrix: Matrix
    task: "asyncio.Task[None]"
    reports: list[str] = field(default_factory=list)

    def session_at(self, room: str) -> SessionId:
        found = self.work.wired.store.index.session_at(Route(channel="matrix", reference=room))
        assert found is not None
        return found

    def log(self, room: str) -> Sequence[Recorded]:
        return self.work.wired.house.feed.read(session_stream(self.session_at(room)))

    def accepted(self, room: str) -> list[str]:
        return [it.event.text for it in self.log(room) if isinstance(it.event, MessageAccepted)]


@asynccontextmanager
async def served(pace: Pace = QUICK, models: Sequence[Model] = ()) -> AsyncGenerator[Served]:
    """Serve the house that the environment names until the context is left."""
    async with open_house(set_up()) as wired:
        own, found = {model.name: model for model in models}, models_of(wired)
        name = models[0].name if models else default_model_of(wired)
        async with agents_at_work(wired, lambda name: own.get(name) or found(name), Wanted(name)) as work:
            for row in wired.store.index.sessions(SessionQuery(channel="matrix", limit=1_000)):
                if row.status != "closed":
                    work.turns.attend(row.session)
            reports: list[str] = []
            matrix = matrix_of(work, reports.append, pace, model=name)
            assert matrix is not None
            task = asyncio.create_task(matrix.run())
            here = Served(work, matrix, task, reports)
            try:
                yield here
                if task.done():
                    task.result()
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


@contextmanager
def process(home: Home, log: Path, model: str = "") -> Generator["subprocess.Popen[bytes]"]:
    """Serve the house in a process of its own, and kill it at the end if nobody did."""
    environ = {**os.environ, **home.environ, "WALL_PASSWORD": "secret", "PYTHONPATH": str(ROOT)}
    with log.open("ab") as out:
        running = subprocess.Popen(
            [sys.executable, "-m", "tests.support.matrix_house", model], cwd=ROOT, env=environ, stdout=out, stderr=out
        )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
        running.wait()


async def _serve() -> None:
    async with served(models=[Echo()] if sys.argv[1:] == ["echo"] else ()) as here:
        await here.task


if __name__ == "__main__":
    asyncio.run(_serve())
