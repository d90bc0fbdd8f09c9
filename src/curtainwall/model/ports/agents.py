"""The protocols between an agent and the runtime: turns, and the record of the agent's work."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import JsonValue

from curtainwall.model.blobs import Payload
from curtainwall.model.events import AnyEvent, Progress
from curtainwall.model.events.turns import TurnStatus
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import CallId, SessionId, TurnId
from curtainwall.model.presence import Presence


class Live(Frozen):
    """A live update that is not recorded: a piece of the agent's text, its current activity, or a failure that is retried."""

    kind: Literal["text", "doing", "again"]
    text: str
    turn: TurnId | None = None
    """The turn it belongs to, or None between turns."""


class Journal(Protocol):
    """Records an agent's work."""

    async def record(self, session: SessionId, events: Sequence[Progress]) -> Sequence[AnyEvent]:
        """Record the events durably, and return them with all that followed from them."""
        ...

    async def keep(self, value: JsonValue) -> Payload:
        """Return the payload of a value; store a big one as a blob."""
        ...

    def load(self, payload: Payload) -> JsonValue:
        """Return the value of a payload."""
        ...

    def publish(self, session: SessionId, live: Live) -> None:
        """Send a live update to all listeners; nothing is recorded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAt:
    """A turn that an agent is to work on; `resumed` says that it may have worked on it before."""

    session: SessionId
    turn: TurnId
    resumed: bool = False
    presence: Presence = field(default_factory=Presence, compare=False, repr=False)
    """Tells, when `work` is cancelled, whether the turn is interrupted, or its agent leaves and resumes the turn later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How an agent left a turn: done, failed with a reason, or waiting for the answers to these calls."""

    status: TurnStatus
    failure: str = ""
    fault: str = ""
    """The name of the fault, for programs."""
    waits_for: tuple[CallId, ...] = ()
    last: tuple[Progress, ...] = ()
    """Events that the agent has not recorded yet; they are written together with the end of the turn."""


class Agent(Protocol):
    """Does a session's work. Cancelling `work` interrupts the turn, unless the agent leaves; the shown text is kept."""

    async def work(self, at: TurnAt) -> TurnResult:
        """Work on the turn until it is done or has to wait."""
        ...

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Replace older messages by a summary, or record why not."""
        ...

    def forget(self, session: SessionId) -> None:
        """Drop what is held in memory for a session; the log has everything."""
        ...
