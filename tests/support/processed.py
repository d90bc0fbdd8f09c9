"""Sessions whose agents are local processes: a real house with its gate, real confinement, and a provider that answers what it is asked."""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from curtainwall.agents.process import EGRESS_SOCKET, TOOLS_SOCKET, Around, Folders, Limits, ProcessAgent, Reach, find_claude
from curtainwall.facts import Masker
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    Digest,
    MessageId,
    Mode,
    OpenSession,
    ReadySession,
    SendMessage,
    SessionId,
    SessionOpened,
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
from tests.support.forwarding import Forwarding, forwarding
from tests.support.houses import ANN, events, house, until
from tests.support.mcp import native
from tests.support.prompted import Prompted, prompted
from tests.support.real_parts import CLAUDE
from tests.support.upstream import KEY

KEPT = "k" * 32


@dataclass
class Ways:
    """Opens a session's two sockets: the real door to its tools, and a proxy that leads to the provider of the test."""

    house: House
    provider: Prompted
    authority: Authority
    proxies: dict[SessionId, Forwarding] = field(default_factory=dict)
    key: str = KEY

    @asynccontextmanager
    async def open(self, session: SessionId, run: Path, user: int, providers: Sequence[str]) -> AsyncGenerator[Reach]:
        hands = native()
        door = Door(session, SessionGate(self.house, hands), self.house.feed, hands.catalogue.listing, self.house.clock)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(door.open(run / TOOLS_SOCKET, owner=user))
            way = forwarding(run / EGRESS_SOCKET, self.authority, self.provider.port, user)
            self.proxies[session] = await stack.enter_async_context(way)
            pem = self.authority._certificate.public_bytes(serialization.Encoding.PEM).decode()
            yield Reach(keys=dict.fromkeys(providers, self.key) if self.key else {}, certificates=pem)


@dataclass
class Processed:
    """A house whose agents are local processes."""

    house: House
    home: Path
    provider: Prompted
    ways: Ways
    journal: HouseJournal
    agent: ProcessAgent
    turns: Turns

    async def open(self, project: Path | None = None, model: str = "") -> SessionId:
        """Open a session in a project and let its agent work."""
        session = SessionId(self.house.mint())
        workspace = project or self.home / session / "project"
        workspace.mkdir(parents=True, exist_ok=True)
        command = OpenSession(
            by=ANN,
            session=session,
            name="test",
            agent="claude-local",
            model=model,
            workspace=Workspace(path=str(workspace), own=project is None),
            mode=Mode.DEFAULT,
            limits=Budgets(),
            policy=Digest(self.house.rules().policy.version),
        )
        await self.house.send(session, command)
        await self.house.send(session, ReadySession(by=ANN))
        self.turns.attend(session)
        return session

    def folders(self, session: SessionId) -> Folders:
        workspace = next(Path(event.workspace.path) for event in self.events(session) if isinstance(event, SessionOpened))
        return folders(self.home, session, workspace)

    def transcripts(self, session: SessionId) -> list[Path]:
        """Return every conversation that the agent has written down for a session."""
        return sorted(self.folders(session).state.glob("projects/*/*.jsonl"))

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

        return await until(over, 60)

    def events(self, session: SessionId) -> list[AnyEvent]:
        return events(self.house, session)


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


def folders(home: Path, session: SessionId, workspace: Path) -> Folders:
    root = home / session
    return Folders(workspace.resolve(), root / "orientation", home / "r" / session[-8:], root / "state", home / "locks")


@asynccontextmanager
async def processed(
    home: Path, *, program: Path = CLAUDE, limits: Limits | None = None, stores: Stores | None = None
) -> AsyncGenerator[Processed]:
    """Open a house whose agents are processes of this program."""
    scratch = home / "authority"
    scratch.mkdir(parents=True, exist_ok=True)
    async with prompted() as provider, house(stores or MemoryStore(SystemClock())) as opened:
        journal = HouseJournal(opened)
        ways = Ways(opened, provider, Authority(scratch))
        around = Around(
            feed=opened.feed,
            gate=SessionGate(opened, native()),
            journal=journal,
            clock=opened.clock,
            masker=Masker(key=KEPT.encode(), known={}),
            outside=ways,
            folders_of=lambda session, workspace: folders(home, session, Path(workspace.path)),
            program_of=lambda: find_claude(str(program)),
            limits=limits or Limits(),
        )
        agent = ProcessAgent(around)
        turns = Turns(opened, lambda _state: agent, NoHooks(), lambda _session: "")
        try:
            yield Processed(opened, home, provider, ways, journal, agent, turns)
        finally:
            await turns.close()
            await agent.close()


async def gone(pid: int) -> None:
    """Wait until a process is no more."""
    async with asyncio.timeout(30):
        while _is_there(pid):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.02)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
