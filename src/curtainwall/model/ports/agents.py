"""Where an agent meets the runtime: its turns, and what it tells of them."""

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
    """Something that happens right now and is not kept: a piece of the agent's text, what it does, or what failed and is tried again."""

    kind: Literal["text", "doing", "again"]
    text: str
    turn: TurnId | None = None
    """The turn in which it happens; None where it happens between two."""


class Journal(Protocol):
    """Where an agent writes down its work."""

    async def record(self, session: SessionId, events: Sequence[Progress]) -> Sequence[AnyEvent]:
        """Keep the events durably and return everything that happened because of them."""
        ...

    async def keep(self, value: JsonValue) -> Payload:
        """Return the payload of a value, kept as a blob where it is big."""
        ...

    def load(self, payload: Payload) -> JsonValue:
        """Return the value of a payload."""
        ...

    def publish(self, session: SessionId, live: Live) -> None:
        """Tell whoever listens what happens right now; nothing is kept."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAt:
    """A turn that an agent is to work on; `resumed` says that it may have worked on it before."""

    session: SessionId
    turn: TurnId
    resumed: bool = False
    presence: Presence = field(default_factory=Presence, compare=False, repr=False)
    """Tells, when `work` is cancelled, whether the turn is interrupted or its agent leaves and takes it up later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How an agent left a turn: done, failed with a reason, or waiting for the answers to these calls."""

    status: TurnStatus
    failure: str = ""
    fault: str = ""
    """The name of what went wrong, for programs."""
    waits_for: tuple[CallId, ...] = ()
    last: tuple[Progress, ...] = ()
    """What the agent has not recorded yet, to be kept together with the end of the turn."""


class Agent(Protocol):
    """Whoever does a session's work. Cancelling `work` interrupts the turn, unless the agent leaves; what was shown is kept."""

    async def work(self, at: TurnAt) -> TurnResult:
        """Work on the turn until it is done or has to wait."""
        ...

    async def compact(self, session: SessionId, instructions: str) -> None:
        """Replace older messages by a summary, or record why not."""
        ...

    def forget(self, session: SessionId) -> None:
        """Let go of what is held in memory for a session; the log knows it all."""
        ...
