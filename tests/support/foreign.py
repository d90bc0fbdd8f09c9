"""What houses of foreign agents have in common in tests: how a session is opened and talked to, and the ways that lead out of one."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from curtainwall.agents.external.process import EGRESS_SOCKET, TOOLS_SOCKET
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    Digest,
    Limits,
    MessageId,
    Mode,
    OpenSession,
    ReadySession,
    SendMessage,
    SessionId,
    TurnEnded,
    TurnId,
    TurnStatus,
    Workspace,
    session_stream,
)
from curtainwall.runtime import SessionGate, SessionJournal, SessionRegistry, Turns
from curtainwall.tools.mcp_in import McpServer
from tests.support.certificates import Authority
from tests.support.forwarding import Forwarding, forwarding
from tests.support.houses import ANN, events, until
from tests.support.mcp import native
from tests.support.prompted import Prompted
from tests.support.upstream import KEY


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


@dataclass
class Outside:
    """Opens a session's two sockets: the real door to its tools, and a proxy that leads to the provider of the test."""

    house: SessionRegistry
    provider: Prompted
    authority: Authority
    proxies: dict[SessionId, Forwarding] = field(default_factory=dict)
    key: str = KEY
    is_closed: bool = False

    @asynccontextmanager
    async def sockets(self, session: SessionId, run: Path, user: int, turn: TurnId | None = None) -> AsyncGenerator[str]:
        """Open both, unless the door is closed, and give the certificate that the proxy is trusted by."""
        hands, house = native(), self.house
        door = McpServer(session, SessionGate(house, hands), house.feed, hands.catalogue.listing, house.clock, turn=turn)
        async with AsyncExitStack() as stack:
            if not self.is_closed:
                await stack.enter_async_context(door.open(run / TOOLS_SOCKET, owner=user))
            way = forwarding(run / EGRESS_SOCKET, self.authority, self.provider.port, user)
            self.proxies[session] = await stack.enter_async_context(way)
            yield self.authority._certificate.public_bytes(serialization.Encoding.PEM).decode()


@dataclass
class Rig:
    """A house whose agents are programs of others."""

    house: SessionRegistry
    home: Path
    provider: Prompted
    journal: SessionJournal
    turns: Turns

    async def begin(self, session: SessionId, agent: str, workspace: Workspace, model: str = "", mode: Mode = Mode.DEFAULT) -> SessionId:
        """Open a session and let its agent work."""
        command = OpenSession(
            by=ANN,
            session=session,
            name="test",
            agent=agent,
            model=model,
            workspace=workspace,
            mode=mode,
            limits=Limits(),
            policy=Digest(self.house.rules().policy.version),
        )
        await self.house.send(session, command)
        await self.house.send(session, ReadySession(by=ANN))
        self.turns.attend(session)
        return session

    async def tell(self, session: SessionId, text: str) -> None:
        """Send a message and wait for nothing."""
        await self.house.send(session, SendMessage(by=ANN, message=MessageId(self.house.mint()), text=text))

    async def say(self, session: SessionId, text: str) -> Turned:
        """Send a message and return how its turn went."""
        before = self.house.feed.head(session_stream(session))
        await self.tell(session, text)
        return await self.ended(session, before)

    async def ended(self, session: SessionId, after: int) -> Turned:
        """Wait for the end of a turn, beyond every wait in it, and return how it went."""
        stream = session_stream(session)

        def over() -> Turned | None:
            happened = [recorded.event for recorded in self.house.feed.read(stream, after)]
            ends = (event for event in happened if isinstance(event, TurnEnded))
            end = next((event for event in ends if event.status is not TurnStatus.WAITING), None)
            return Turned(end, happened) if end else None

        return await until(over, 90)

    def events(self, session: SessionId) -> list[AnyEvent]:
        return events(self.house, session)
