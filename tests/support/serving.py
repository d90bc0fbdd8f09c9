"""A served home from outside: the real process, sessions that were born on a channel, and what `/health` says."""

import asyncio
import json
import urllib.request
from collections.abc import Coroutine, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import (
    AnswerApproval,
    AnyEvent,
    ApprovalId,
    ApprovalQuery,
    CloseSession,
    MessageId,
    Route,
    SendMessage,
    SessionId,
    Who,
    session_stream,
)
from curtainwall.operations.open import SessionSpec, open_new

ANN = Who(name="ann", channel="web")
"""An operator of the channel `web`, where the configuration says so."""


def page(port: int, path: str) -> str:
    """Return a page of the status port, or nothing while there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def health(port: int) -> dict[str, Any]:
    """Return what `/health` says, or nothing while nobody is there to say it."""
    told = page(port, "/health")
    return json.loads(told) if told else {}


def script_of(place: Path, lines: Sequence[dict[str, object]]) -> str:
    """Return the model that says these lines."""
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"script:{place}"


class Home:
    """A home as another process of ours works on it."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._setup = load_setup(environ=environ)

    def run(self, work: "Coroutine[Any, Any, Any]") -> Any:
        return asyncio.run(asyncio.wait_for(work, 390))

    async def open(self, stack: AsyncExitStack) -> GatedSessions:
        return await stack.enter_async_context(open_gate(self._setup))

    def born(self, *models: str, routes: tuple[Route, ...] = (Route(channel="web", reference=""),), text: str = "go") -> list[SessionId]:
        """Open sessions on the channel `web`, each with a message that waits for its agent."""

        async def opened() -> list[SessionId]:
            async with open_gate(self._setup) as wired:
                return list(await asyncio.gather(*(_born(wired, model, routes, text) for model in models)))

        return self.run(opened())

    def events(self, session: SessionId) -> list[AnyEvent]:
        async def read() -> list[AnyEvent]:
            async with open_gate(self._setup) as wired:
                return [recorded.event for recorded in wired.registry.feed.read(session_stream(session))]

        return self.run(read())

    def answer(self, approval: str, session: SessionId, *, granted: bool = True) -> None:
        async def answered() -> None:
            async with open_gate(self._setup) as wired:
                await answer(wired, session, approval, granted=granted)

        self.run(answered())

    @contextmanager
    def having_answered(self, approval: str, session: SessionId) -> Generator[None]:
        """Answer an ask as a process does that has the session from then on, and lets go of it at the end without another word."""
        with asyncio.Runner() as runner:
            stack = AsyncExitStack()
            wired = runner.run(self.open(stack))
            try:
                runner.run(wired.registry.send(session, AnswerApproval(by=local_user(), approval=ApprovalId(approval), granted=True)))
                yield
            finally:
                runner.run(stack.aclose())

    def close(self, session: SessionId) -> None:
        """End a session as a process does that tells nobody of it."""

        async def closed() -> None:
            async with open_gate(self._setup) as wired:
                await wired.registry.send(session, CloseSession(by=ANN, reason="over"))

        self.run(closed())


async def answer(wired: GatedSessions, session: SessionId, approval: str, *, granted: bool = True) -> None:
    """Answer an ask as somebody in a browser does."""
    await wired.registry.send(session, AnswerApproval(by=ANN, approval=ApprovalId(approval), granted=granted), f"answer to {approval}")


def open_asks(wired: GatedSessions) -> list[tuple[SessionId, str]]:
    """Return what waits for an answer."""
    return [(row.session, row.approval) for row in wired.store.index.approvals(ApprovalQuery(limit=10_000))]


async def _born(wired: GatedSessions, model: str, routes: tuple[Route, ...], text: str) -> SessionId:
    session = await open_new(wired.sessions, SessionSpec(model, routes=routes), ANN)
    await wired.registry.send(session, SendMessage(by=ANN, message=MessageId(wired.registry.mint()), text=text))
    return session
