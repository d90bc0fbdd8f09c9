"""Sessions in review mode for tests: an agent that edits its view of a project, in a real home with its real gate."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import (
    AnswerApproval,
    AnyEvent,
    ApprovalAsked,
    MessageAccepted,
    MessageId,
    Mode,
    PendingAsk,
    SendMessage,
    SessionId,
    TurnAt,
    TurnEnded,
    TurnResult,
    TurnStatus,
    Who,
    session_stream,
)
from curtainwall.operations.open import SessionSpec, open_new
from curtainwall.operations.reviews import ViewReviews
from curtainwall.runtime import NoHooks, Turns
from curtainwall.session import SessionState, pending_ask
from tests.support.waiting import eventually

ANN = Who(name="ann")

Edit = Callable[[Path], None]
"""Changes something in the view, whose directory it is given."""


@dataclass
class EditingAgent:
    """An agent that makes one edit each time it works."""

    wired: GatedSessions
    edits: list[Edit] = field(default_factory=list)
    turns: int = 0

    async def work(self, at: TurnAt) -> TurnResult:
        self.turns += 1
        if self.edits:
            edit = self.edits.pop(0)
            await asyncio.to_thread(self._edit, at.session, edit)
        return TurnResult(status=TurnStatus.DONE)

    def _edit(self, session: SessionId, edit: Edit) -> None:
        use = self.wired.views.enter(self.wired.sessions.state(session).place)
        assert use is not None
        try:
            edit(Path(f"/proc/self/fd/{use.entrance.root}"))
        finally:
            use.close()

    async def compact(self, session: SessionId, instructions: str) -> None:
        raise NotImplementedError

    def forget(self, session: SessionId) -> None:
        raise NotImplementedError


@dataclass
class Reviewed:
    """One session in review mode, looked after in this process."""

    wired: GatedSessions
    agent: EditingAgent
    turns: Turns
    session: SessionId
    messages: int = 0

    async def work(self, *edits: Edit, text: str = "go") -> None:
        """Have the agent make these edits, one each time it works, and wait until the turn ends or waits."""
        self.agent.edits += edits
        self.messages += 1
        await self.wired.registry.send(self.session, SendMessage(by=ANN, message=MessageId(f"m{self.messages}"), text=text))
        await self.stands()

    async def stands(self) -> TurnStatus:
        """Wait until the last turn has ended or waits for somebody, and return how."""

        def last() -> TurnEnded | None:
            state = self.state
            if state.queue or state.works or state.can_go_on or state.applying is not None:
                return None
            return next((event for event in reversed(self.events) if isinstance(event, TurnEnded)), None)

        return (await eventually(last)).status

    async def answer(self, *, granted: bool = True, reason: str = "", only: tuple[str, ...] | None = None, discard: bool = False) -> None:
        """Answer the one open ask, and wait until the turn ends or waits again."""
        command = AnswerApproval(by=ANN, approval=self.ask.approval, granted=granted, reason=reason, only=only, discard=discard)
        await self.wired.registry.send(self.session, command)
        await self.stands()

    @property
    def state(self) -> SessionState:
        return self.wired.sessions.state(self.session)

    @property
    def events(self) -> list[AnyEvent]:
        return [recorded.event for recorded in self.wired.registry.feed.read(session_stream(self.session))]

    @property
    def asks(self) -> int:
        return sum(isinstance(event, ApprovalAsked) for event in self.events)

    @property
    def ask(self) -> PendingAsk:
        (open_,) = self.state.approvals.values()
        return pending_ask(open_, self.state.calls[open_.calls[0]].subject)

    @property
    def card(self) -> list[str]:
        return self.ask.shown.split("\n")

    @property
    def told(self) -> list[str]:
        """What the agent was told besides people's messages."""
        return [event.text for event in self.events if isinstance(event, MessageAccepted) and event.role == "context"]


@asynccontextmanager
async def gated(home: Path) -> AsyncGenerator[GatedSessions]:
    """Open a home with its gate."""
    environ = {**os.environ, "CURTAINWALL_HOME": str(home), "HOME": str(home.parent)}
    async with open_gate(load_setup(environ=environ)) as wired:
        yield wired


@asynccontextmanager
async def attended(wired: GatedSessions, session: SessionId) -> AsyncGenerator[Reviewed]:
    """Look after a session with an agent that edits."""
    agent = EditingAgent(wired)
    reviews = ViewReviews(wired.sessions, wired.gate, wired.views, wired.masker)
    turns = Turns(wired.registry, agent, NoHooks(), lambda _: "", wired.gate, None, reviews)
    turns.attend(session)
    try:
        yield Reviewed(wired, agent, turns, session)
    finally:
        await turns.close()


@asynccontextmanager
async def reviewed(home: Path, project: Path, mode: Mode = Mode.REVIEW) -> AsyncGenerator[Reviewed]:
    """Open a session in a project and look after it."""
    async with gated(home) as wired:
        session = await open_new(wired.sessions, SessionSpec("demo", workspace=project, mode=mode), ANN)
        async with attended(wired, session) as here:
            yield here
