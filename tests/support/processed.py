"""Sessions whose agents are local processes: a real house with its gate, real confinement, and a provider that answers what it is asked."""

import tempfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from curtainwall.agents.external.process import (
    EXTENSION,
    ConversationStatus,
    ProcessAgent,
    ProcessFolders,
    ProcessHistory,
    ProcessLimits,
    ProcessNetwork,
    ProcessPorts,
    adoption_event,
    claim_conversation,
    conversation_status,
    find_claude,
)
from curtainwall.facts import Masker
from curtainwall.model import (
    SessionId,
    SessionOpened,
    Workspace,
)
from curtainwall.runtime import NoHooks, SessionGate, SessionJournal, Stores, SystemClock, Turns
from curtainwall.store import MemoryStore
from tests.support.certificates import Authority
from tests.support.foreign import Outside, Rig
from tests.support.houses import house
from tests.support.mcp import native
from tests.support.prompted import prompted
from tests.support.real_parts import CLAUDE
from tests.support.waiting import eventually, is_gone

KEPT = "k" * 32


class Ways(Outside):
    """The ways out of a local process, for as long as it lives."""

    @asynccontextmanager
    async def open(self, session: SessionId, run: Path, user: int, providers: Sequence[str]) -> AsyncGenerator[ProcessNetwork]:
        async with self.sockets(session, run, user) as pem:
            yield ProcessNetwork(keys=dict.fromkeys(providers, self.key) if self.key else {}, certificates=pem)


@dataclass
class Processed(Rig):
    """A house whose agents are local processes."""

    ways: Ways
    agent: ProcessAgent

    async def open(self, project: Path | None = None, model: str = "") -> SessionId:
        """Open a session in a project and let its agent work."""
        session = SessionId(self.house.mint())
        workspace = project or self.home / session / "project"
        workspace.mkdir(parents=True, exist_ok=True)
        return await self.begin(session, "claude-local", Workspace(path=str(workspace), own=project is None), model)

    def folders(self, session: SessionId) -> ProcessFolders:
        workspace = next(Path(event.workspace.path) for event in self.events(session) if isinstance(event, SessionOpened))
        return folders(self.home, session, workspace)

    def standing(self, session: SessionId) -> ConversationStatus:
        """Compare what the log says of a session's conversation with what is on disk."""
        past = ProcessHistory(EXTENSION, self.journal.load)
        past.sync(self.house.feed, session)
        return conversation_status(past, self.folders(session))

    async def adopt(self, session: SessionId, conversation: str, source: Path | None = None) -> None:
        """Let a session go on with a conversation that nobody claims."""
        claim_conversation(self.folders(session), conversation, source)
        await self.journal.record(session, (adoption_event(conversation, self.house.clock.now()),))

    def transcripts(self, session: SessionId) -> list[Path]:
        """Return every conversation that the agent has written down for a session."""
        return sorted(self.folders(session).state.glob("projects/*/*.jsonl"))


def folders(home: Path, session: SessionId, workspace: Path) -> ProcessFolders:
    root = home / session
    return ProcessFolders(workspace.resolve(), root / "orientation", home / "r" / session[-8:], root / "state", home / "locks")


@asynccontextmanager
async def processed(
    home: Path, *, program: Path = CLAUDE, limits: ProcessLimits | None = None, stores: Stores | None = None
) -> AsyncGenerator[Processed]:
    """Open a house whose agents are processes of this program."""
    scratch = home / "authority"
    scratch.mkdir(parents=True, exist_ok=True)
    async with prompted() as provider, house(stores or MemoryStore(SystemClock())) as opened:
        journal = SessionJournal(opened)
        ways = Ways(opened, provider, Authority(scratch))
        around = ProcessPorts(
            feed=opened.feed,
            gate=SessionGate(opened, native()),
            journal=journal,
            clock=opened.clock,
            masker=Masker(key=KEPT.encode(), known={}),
            outside=ways,
            folders_of=lambda session, workspace: folders(home, session, Path(workspace.path)),
            program_of=lambda: find_claude(str(program)),
            limits=limits or ProcessLimits(),
        )
        agent = ProcessAgent(around)
        turns = Turns(opened, agent, NoHooks(), lambda _session: "")
        try:
            yield Processed(opened, home, provider, journal, turns, ways, agent)
        finally:
            await turns.close()
            await agent.close()


async def gone(pid: int) -> None:
    """Wait until a process is no more."""
    await eventually(lambda: is_gone(pid))


@pytest.fixture
def short_path(bubblewrap: str) -> Iterator[Path]:
    """Return a directory whose sockets have short names, on a machine that can confine."""
    with tempfile.TemporaryDirectory(prefix="cw-") as name:
        yield Path(name)
