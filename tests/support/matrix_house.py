"""A house that is served on Matrix: inside a test, or as a process of its own that can be killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from curtainwall.agents.builtin import LanguageModel
from curtainwall.agents.builtin.language_model import AgentMessage, Delta, ModelFault, ModelReply, ModelRetry, Prompt, UserMessage
from curtainwall.agents.builtin.models.usage import free_usage
from curtainwall.compose.sessions import Parts
from curtainwall.model import (
    Blobs,
    FoldSnapshots,
    Inbox,
    Index,
    Leases,
    Log,
    Marks,
    MessageAccepted,
    Recorded,
    Route,
    SessionId,
    session_stream,
)
from curtainwall.runtime import SystemClock
from curtainwall.serve.service import Serving, serving
from curtainwall.session import lift
from curtainwall.store import SqliteStore
from tests.support.forks import LIBRARY, Begun, begun
from tests.support.hostile_homeserver import Enemy
from tests.support.repository import ROOT
from tests.support.synapse import Person, Synapse
from tests.support.talking import Home


def configure(home: Home, server: Synapse | Enemy, *, model: str = "demo", matrix: str = "", user: str = "wall") -> None:
    """Write the configuration of a house that is somebody on a homeserver, with ann as its operator."""
    home.configure(
        f'[model]\nname = "{model}"\n[channels.matrix]\noperators = ["{server.user("ann")}"]\n[matrix]\nhomeserver = "{server.url}"\n'
        f'user = "{server.user(user)}"\ndevice = "WALL"\npassword-env = "WALL_PASSWORD"\n{matrix}\n'
    )


@dataclass
class Echo:
    """A model that says what it heard since it last spoke; it may be held up in the middle."""

    goes_on: asyncio.Event | None = None
    name: str = "echo"
    context_size: int = 1_000_000

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelReply]:
        heard: list[str] = []
        for item in prompt.items:
            heard = [*heard, item.text] if isinstance(item, UserMessage) else [] if isinstance(item, AgentMessage) else heard
        said = AgentMessage(text=f"heard: {' | '.join(heard)}")
        middle = len(said.text) // 2
        yield Delta(said.text[:middle])
        if self.goes_on is not None:
            await self.goes_on.wait()
        yield Delta(said.text[middle:])
        yield ModelReply(said, {"said": said.text}, free_usage(prompt, said), "end_turn")


@dataclass
class Unsteady:
    """A model that is tried again as often as it is told why, until it is told nothing, and answers, or to give up."""

    moves: "asyncio.Queue[str]"
    name: str = "unsteady"
    context_size: int = 1_000_000

    async def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelRetry | ModelReply]:
        attempt = 1
        while why := await self.moves.get():
            if why == "give up":
                raise ModelFault("rejected", "it is gone")
            attempt += 1
            yield ModelRetry(attempt, 6, 7.0, why)
        said = AgentMessage(text="I am back")
        yield Delta(said.text)
        yield ModelReply(said, {"said": said.text}, free_usage(prompt, said), "end_turn")


@dataclass
class Served:
    """A house that is served."""

    serving: Serving

    @property
    def health(self) -> str:
        return self.serving.supervisor.health()["matrix"]

    def session_at(self, room: str) -> SessionId:
        found = self.serving.wired.store.index.session_at(Route(channel="matrix", reference=room))
        assert found is not None
        return found

    def log(self, room: str) -> Sequence[Recorded]:
        return self.serving.wired.registry.feed.read(session_stream(self.session_at(room)))

    def accepted(self, room: str) -> list[str]:
        return [it.event.text for it in self.log(room) if isinstance(it.event, MessageAccepted)]


@dataclass
class HaltingMarks:
    """Marks that keep so many changes and then stop as if killed right before the next; unless they are resumed, for good.

    With a name, only changes of what begins so are counted.
    """

    marks: Marks
    left: int
    named: str = ""
    halted: asyncio.Event = field(default_factory=asyncio.Event)
    resumed: asyncio.Event = field(default_factory=asyncio.Event)

    def get(self, channel: str, name: str) -> str | None:
        return self.marks.get(channel, name)

    def all(self, channel: str) -> Mapping[str, str]:
        return self.marks.all(channel)

    async def set(self, channel: str, marks: Mapping[str, str | None]) -> None:
        if any(name.startswith(self.named) for name in marks):
            if self.left == 0:
                self.halted.set()
                await self.resumed.wait()
            else:
                self.left -= 1
        await self.marks.set(channel, marks)


@dataclass
class HaltingStore:
    """A store whose marks halt."""

    log: Log
    inbox: Inbox
    leases: Leases
    blobs: Blobs
    index: Index
    marks: HaltingMarks
    snapshots: FoldSnapshots | None


@asynccontextmanager
async def served(*models: LanguageModel) -> AsyncGenerator[Served]:
    """Serve the house that the environment names until the context is left."""
    async with serving(models=models) as house:
        yield Served(house)


@asynccontextmanager
async def halting(home: Home, after: int, *models: LanguageModel, named: str = "") -> AsyncGenerator[HaltingMarks]:
    """Serve the house until its channel has remembered so many things, and stop it there."""
    async with SqliteStore.open(home.root, SystemClock(), decode=lift) as store:
        marks = HaltingMarks(store.marks, after, named)
        parts = Parts(store=HaltingStore(store.log, store.inbox, store.leases, store.blobs, store.index, marks, store.snapshots))
        async with serving(models=models, parts=parts):
            yield marks


@contextmanager
def process(home: Home, log: Path, model: str = "") -> Generator["subprocess.Popen[bytes] | Begun"]:
    """Serve the house in a process of its own, and kill it at the end if nobody did."""
    environ = {**os.environ, **home.environ, "WALL_PASSWORD": "secret", "PYTHONPATH": str(ROOT)}
    with log.open("ab") as out, Path(os.devnull).open() as nothing:
        if model:
            files = (nothing.fileno(), out.fileno(), out.fileno())
            running = begun("tests.support.matrix_house", model, files=files, environ=environ, imported=LIBRARY)
        else:
            running = subprocess.Popen([sys.executable, "-m", "curtainwall", "serve"], cwd=ROOT, env=environ, stdout=out, stderr=out)
    try:
        yield running
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
        running.wait()


async def _serve() -> None:
    moves = asyncio.Queue[str]()
    # It answers once, so that whatever is said live is heard from there on.
    for move in ("", "nobody answers"):
        moves.put_nowait(move)
    models: dict[str, LanguageModel] = {"echo": Echo(), "unsteady": Unsteady(moves)}
    async with serving(models=[models[name] for name in sys.argv[1:]]):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())


def heard_by_echo(ann: Person, room: str, wall: str) -> list[str]:
    """Return what the echo said it heard, in the order in which it was said."""
    said = [it.text for it in ann.heard(room, wall) if it.text.startswith("heard: ") and not it.text.endswith("…")]
    return [word for text in said for word in text.removeprefix("heard: ").split(" | ")]
