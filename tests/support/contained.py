"""Sessions whose agents live in containers: a real house with its gate, a real engine, and a provider that answers what it is asked."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from curtainwall.agents.container import (
    EGRESS_SOCKET,
    TOOLS_SOCKET,
    Adapter,
    Adapters,
    Around,
    ContainerAgent,
    Engine,
    Fleet,
    Folders,
    Limits,
    Program,
    Reach,
)
from curtainwall.facts import Masker
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    Digest,
    Live,
    MessageId,
    Mode,
    OpenSession,
    ReadySession,
    SendMessage,
    SessionId,
    TurnAt,
    TurnEnded,
    TurnStatus,
    Workspace,
    session_stream,
)
from curtainwall.model import Limits as Budgets
from curtainwall.runtime import House, HouseJournal, NoHooks, SessionGate, Stores, SystemClock, Turns
from curtainwall.store import MemoryStore
from curtainwall.tools.mcp_in import Door
from tests.support.certificates import Authority
from tests.support.docker_engine import IMAGE, DockerEngine
from tests.support.forwarding import Forwarding, forwarding
from tests.support.houses import ANN, events, house, until
from tests.support.mcp import native
from tests.support.prompted import Prompted, prompted
from tests.support.real_parts import CLAUDE, CODEX, GEMINI, OPENCODE
from tests.support.upstream import KEY

LENT = {
    "claude-code": (Program(CLAUDE, "/usr/local/bin/claude"),),
    "codex": (Program(CODEX, "/usr/local/bin/codex"),),
    "opencode": (Program(OPENCODE, "/usr/local/bin/opencode"),),
    "gemini": (Program(GEMINI, "/usr/local/lib/gemini"),),
}
"""The CLI agents of this machine, as they are lent to containers."""


@dataclass
class Ways:
    """Opens a session's two sockets: the real door to its tools, and a proxy that leads to the provider of the test."""

    house: House
    provider: Prompted
    authority: Authority
    proxies: dict[SessionId, Forwarding] = field(default_factory=dict)
    is_closed: bool = False

    @asynccontextmanager
    async def open(self, at: TurnAt, run: Path, user: int, providers: Sequence[str]) -> AsyncGenerator[Reach]:
        hands = native()
        house, session = self.house, at.session
        door = Door(session, SessionGate(house, hands), house.feed, hands.catalogue.listing, house.clock, turn=at.turn)
        async with AsyncExitStack() as stack:
            if not self.is_closed:
                await stack.enter_async_context(door.open(run / TOOLS_SOCKET, owner=user))
            way = forwarding(run / EGRESS_SOCKET, self.authority, self.provider.port, user)
            self.proxies[session] = await stack.enter_async_context(way)
            pem = self.authority._certificate.public_bytes(serialization.Encoding.PEM).decode()
            yield Reach(keys=dict.fromkeys(providers, KEY), certificates=pem)


@dataclass
class Contained:
    """A house whose agents are in containers."""

    house: House
    home: Path
    provider: Prompted
    ways: Ways
    engine: Engine
    fleet: Fleet
    journal: HouseJournal
    agent: ContainerAgent
    turns: Turns
    docker: DockerEngine

    async def open(self, agent: str, model: str = "", mode: Mode = Mode.DEFAULT) -> SessionId:
        """Open a session with its own workspace and let its agent work."""
        session = SessionId(self.house.mint())
        workspace = self.folders(session).workspace
        workspace.mkdir(parents=True)
        command = OpenSession(
            by=ANN,
            session=session,
            name="test",
            agent=agent,
            model=model,
            workspace=Workspace(path=str(workspace), own=True),
            mode=mode,
            limits=Budgets(),
            policy=Digest(self.house.rules().policy.version),
        )
        await self.house.send(session, command)
        await self.house.send(session, ReadySession(by=ANN))
        self.turns.attend(session)
        return session

    def folders(self, session: SessionId) -> Folders:
        return _folders(self.home, session)

    async def tell(self, session: SessionId, text: str) -> None:
        """Send a message and wait for nothing."""
        await self.house.send(session, SendMessage(by=ANN, message=MessageId(self.house.mint()), text=text))

    async def say(self, session: SessionId, text: str) -> "Turned":
        """Send a message and return how its turn went."""
        before = self.house.feed.head(session_stream(session))
        await self.tell(session, text)
        return await self.ended(session, before)

    async def ended(self, session: SessionId, after: int) -> "Turned":
        """Wait for the end of a turn, beyond every wait in it, and return how it went."""
        stream = session_stream(session)

        def over() -> "Turned | None":
            happened = [recorded.event for recorded in self.house.feed.read(stream, after)]
            ends = (event for event in happened if isinstance(event, TurnEnded))
            end = next((event for event in ends if event.status is not TurnStatus.WAITING), None)
            return Turned(end, happened) if end else None

        return await until(over, 90)

    def events(self, session: SessionId) -> list[AnyEvent]:
        return events(self.house, session)

    async def becomes(self, session: SessionId, wanted: str) -> None:
        """Wait until the engine says so of a session's container; one that is removed is `gone`."""
        async with asyncio.timeout(60):
            while wanted not in ([each.state for each in await self.engine.found(session)] or ["gone"]):  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.02)

    async def container(self, session: SessionId) -> str:
        """Return the id of a session's container."""
        return (await self.engine.found(session))[0].id

    async def inspect(self, session: SessionId) -> dict[str, Any]:
        """Return what the engine's own client says of a session's container."""
        id_ = await self.container(session)
        return json.loads(await asyncio.to_thread(self.docker.docker, "inspect", id_))[0]

    async def inside(self, session: SessionId, script: str) -> str:
        """Run a script in a session's container as its agent would, and return what it says."""
        return await asyncio.to_thread(self.docker.docker, "exec", await self.container(session), "sh", "-c", script)


@dataclass(frozen=True)
class Turned:
    """How a turn went."""

    end: TurnEnded
    events: list[AnyEvent]

    @property
    def text(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, AgentSpoke))

    @property
    def is_done(self) -> bool:
        return self.end.status is TurnStatus.DONE


def _folders(home: Path, session: SessionId) -> Folders:
    root = home / session
    return Folders(root / "workspace", root / "orientation", home / "r" / session[-8:], root / "state")


@asynccontextmanager
async def contained(
    engine: DockerEngine, home: Path, *more: Adapter, limits: Limits | None = None, stores: Stores | None = None
) -> AsyncGenerator[Contained]:
    """Open a house whose agents are in containers of this engine."""
    scratch = home / "authority"
    scratch.mkdir(parents=True, exist_ok=True)
    async with prompted() as provider, house(stores or MemoryStore(SystemClock())) as opened:
        docker = Engine(engine.address)
        fleet = Fleet(docker, limits or Limits(), house=str(home))
        journal = HouseJournal(opened)
        ways = Ways(opened, provider, Authority(scratch))
        around = Around(
            feed=opened.feed,
            gate=SessionGate(opened, native()),
            journal=journal,
            clock=opened.clock,
            masker=Masker(key=b"k" * 32, known={}),
            fleet=fleet,
            outside=ways,
            adapters=Adapters(*more),
            folders_of=lambda session, _workspace, _mode: _folders(home, session),
            image_of=lambda _agent: IMAGE,
            programs_of=lambda agent: LENT.get(agent, ()),
        )
        agent = ContainerAgent(around)
        turns = Turns(opened, lambda _state: agent, NoHooks(), lambda _session: "")
        try:
            yield Contained(opened, home, provider, ways, docker, fleet, journal, agent, turns, engine)
        finally:
            await turns.close()
            await agent.close()
            await docker.close()


@asynccontextmanager
async def listening(rig: Contained, session: SessionId) -> AsyncGenerator[Callable[[], list[Live]]]:
    """Collect what is said live."""
    heard: list[Live] = []

    async def collect() -> None:
        async with rig.journal.listen(session) as said:
            async for live in said:
                heard.append(live)  # noqa: PERF401 - it is looked at meanwhile

    task = asyncio.create_task(collect())
    try:
        yield lambda: heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
