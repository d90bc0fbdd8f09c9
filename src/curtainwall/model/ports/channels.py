"""Where channels meet sessions: what they can do, read and hear."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from curtainwall.model.commands import AnyCommand
from curtainwall.model.entries import Recorded
from curtainwall.model.ids import SessionId, StreamId
from curtainwall.model.listings import SessionQuery, SessionRow
from curtainwall.model.people import Route, Who
from curtainwall.model.ports.agents import Live
from curtainwall.model.views import Opened, Opening, RuleStatus, SessionView, VerdictReport


class Desk(Protocol):
    """What a channel can do with sessions; whoever decides for them, here or in another process."""

    async def send(self, session: SessionId, command: AnyCommand, key: str | None = None) -> int:
        """Have a command decided and return where the log ends then; raise its refusal. The same key twice is the same command."""
        ...

    def view(self, session: SessionId) -> SessionView:
        """Return the session as it is now; raise `NotFound`."""
        ...

    def find(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first."""
        ...

    async def open(self, opening: Opening, by: Who) -> Opened:
        """Open a session, and let its agent work here."""
        ...


class Explainer(Protocol):
    """Rules and verdicts of a session, for whoever wants to know why."""

    def rules(self, session: SessionId) -> Sequence[RuleStatus]:
        """Return every rule with its standing in the session; raise `NotFound`."""
        ...

    def why(self, session: SessionId, about: str = "") -> VerdictReport:
        """Return why a call, or that of an approval, open or settled, was judged as it was; without one, the last call."""
        ...


class Knowledge(Protocol):
    """What sessions know beyond their own log, in words for a person to read; secrets are masked."""

    def skills(self, session: SessionId) -> str:
        """Return the skills of a session, and which of them ask; raise `NotFound`."""
        ...

    def memory(self, session: SessionId) -> str:
        """Return what a session can recall, and where it is kept; raise `NotFound`."""
        ...


class Places(Protocol):
    """Which session a place leads to, and who may do more there than talk."""

    def session_at(self, place: Route) -> SessionId | None:
        """Return the session that a place leads to."""
        ...

    async def open_at(self, place: Route, by: Who) -> SessionId:
        """Return the session that a place leads to, opened first where there is none, and let its agent work here."""
        ...

    async def move(self, place: Route, session: SessionId, by: Who, instead_of: SessionId | None) -> SessionId:
        """Let a place lead to another session, show that one's asks there, and return the session that it leads to now."""
        ...

    def may_control(self, who: Who) -> bool:
        """Tell whether someone may answer asks and use control words, rather than only talk."""
        ...


class LiveFeed(Protocol):
    """What happens right now in a session that this process works on."""

    def listen(self, session: SessionId) -> AbstractAsyncContextManager[AsyncIterator[Live]]:
        """Tell everything that is said while the context is open."""
        ...


class Feed(Protocol):
    """The log as others read it, from their own cursor."""

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        """Return what is there after the cursor, oldest first; so many at most."""
        ...

    def follow(self, stream: StreamId, after: int = 0) -> AsyncIterator[Recorded]:
        """Go on with what comes after the cursor, until the stream is deleted."""
        ...

    async def grown(self, stream: StreamId, after: int, within: float | None = None) -> None:
        """Return when there is something after the cursor, or so many seconds have passed."""
        ...

    def head(self, stream: StreamId) -> int:
        """Return the cursor behind everything that is there now."""
        ...

    def changes(self) -> AsyncIterator[frozenset[StreamId]]:
        """Tell for ever which streams changed; the empty set, which comes first, means that any may have."""
        ...
