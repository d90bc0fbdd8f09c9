"""The protocols between channels and sessions: commands, views, live updates and the feed."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from curtainwall.model.commands import AnyCommand
from curtainwall.model.entries import Recorded
from curtainwall.model.ids import SessionId, StreamId
from curtainwall.model.listings import SessionQuery, SessionRow
from curtainwall.model.people import Route, Who
from curtainwall.model.ports.agents import Live
from curtainwall.model.views import Opened, Opening, RuleStatus, SessionView, StepsAsked, VerdictReport


class Desk(Protocol):
    """What a channel can do with sessions, no matter which process decides for them."""

    async def send(self, session: SessionId, command: AnyCommand, key: str | None = None) -> int:
        """Submit a command and return the end of the log after it; raise its refusal. A repeated key is the same command."""
        ...

    def view(self, session: SessionId) -> SessionView:
        """Return the current view of a session; raise `NotFound`."""
        ...

    def find(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first."""
        ...

    async def open(self, opening: Opening, by: Who) -> Opened:
        """Open a session and have its agent work here."""
        ...


class Explainer(Protocol):
    """Explains a session's rules and verdicts."""

    def rules(self, session: SessionId) -> Sequence[RuleStatus]:
        """Return every rule with its state in the session; raise `NotFound`."""
        ...

    def why(self, session: SessionId, about: str = "") -> VerdictReport:
        """Return why a call was judged as it was; it is named itself or by its approval, and the default is the last call."""
        ...


class Knowledge(Protocol):
    """What sessions know beyond their own log, as text for people; secrets are masked."""

    def skills(self, session: SessionId) -> str:
        """Return the skills of a session, and which of them need approval; raise `NotFound`."""
        ...

    def memory(self, session: SessionId) -> str:
        """Return the notes that a session can recall, and where they are stored; raise `NotFound`."""
        ...

    def changes(self, session: SessionId) -> str:
        """Return the list of what a session last presented as changes of its project; raise `NotFound`."""
        ...

    def difference(self, session: SessionId, path: str = "") -> str:
        """Return the differences of what a session last presented, or of one file of it; raise `NotFound`."""
        ...


class ChangeSteps(Protocol):
    """Takes accepted changes of a session's project back and applies them again, for operators on text channels; secrets are masked."""

    async def move(self, session: SessionId, by: Who, steps: StepsAsked, code: str = "") -> str:
        """Return what would be written and the code that confirms it; with that code, write it and return how that ended."""
        ...


class Places(Protocol):
    """Maps places to sessions, and knows who may do more there than talk."""

    def session_at(self, place: Route) -> SessionId | None:
        """Return the session that a place leads to."""
        ...

    async def open_at(self, place: Route, by: Who) -> SessionId:
        """Return the session that a place leads to, opening one if there is none, and have its agent work here."""
        ...

    async def move(self, place: Route, session: SessionId, by: Who, instead_of: SessionId | None) -> SessionId:
        """Make a place lead to another session, show that session's asks there, and return the session that it leads to now."""
        ...

    def may_control(self, who: Who) -> bool:
        """Tell whether a person may answer asks and use control words, rather than only talk."""
        ...


class LiveFeed(Protocol):
    """The live updates of a session that this process works on."""

    def listen(self, session: SessionId) -> AbstractAsyncContextManager[AsyncIterator[Live]]:
        """Yield every update while the context is open."""
        ...


class Feed(Protocol):
    """The log for readers, each with their own cursor."""

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Recorded]:
        """Return the events after the cursor, oldest first, up to a limit."""
        ...

    def follow(self, stream: StreamId, after: int = 0) -> AsyncIterator[Recorded]:
        """Yield the events after the cursor as they come, until the stream is deleted."""
        ...

    async def grown(self, stream: StreamId, after: int, within: float | None = None) -> None:
        """Return once there is an event after the cursor, or the time is up."""
        ...

    def head(self, stream: StreamId) -> int:
        """Return the cursor at the current end of the stream."""
        ...

    def changes(self) -> AsyncIterator[frozenset[StreamId]]:
        """Yield, without end, which streams changed. An empty set means that any may have; the first item is one."""
        ...
