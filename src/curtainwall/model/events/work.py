"""An agent's own work: what it asked models, what it ran and used, and what a confined agent did beside the gate."""

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import JsonValue, NonNegativeFloat, NonNegativeInt

from curtainwall.model.blobs import Payload
from curtainwall.model.budgets import BudgetKind, Usage
from curtainwall.model.events.event import Event
from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import CallId, Digest, TurnId
from curtainwall.model.people import Who


class SavedProgram(Frozen):
    """A program of the agent's that waits inside a call. Later steps stand for later places in the same program."""

    program: str
    step: int
    state: Payload


class ProgramSaved(Event):
    """A program of the agent's as it stood when it made this call; written together with the ask or the permit."""

    turn: TurnId
    call: CallId
    program: SavedProgram


class ProgramFinished(Event):
    """A program of the agent's came to its end; `shown` is what the model is told."""

    turn: TurnId
    program: str
    ok: bool
    shown: Payload


class ModelRequested(Event):
    """A request went to a provider: the request before it, plus what was added."""

    turn: TurnId
    request: str
    base: str | None
    added: Payload
    model: str
    purpose: Literal["turn", "summary"] = "turn"


class ModelResponded(Event):
    """What came back, raw and normalised."""

    turn: TurnId
    request: str
    raw: Payload
    normalised: Payload
    usage: Usage
    stop_reason: str = ""


class ModelFailed(Event):
    """A request came to nothing, or to a part; the failure says why. What it used all the same is at best an estimate."""

    turn: TurnId
    request: str
    failure: str
    usage: Usage = Usage()


PROGRAM_INSTRUCTIONS: Final = "<program>"
"""Stands for a file where the instructions are those of the program that opened the session; no file has this name."""


class InstructionsPinned(Event):
    """What a workspace tells agents, as it stood when it was read; the agent goes by this, whatever becomes of the file."""

    path: str
    digest: Digest
    text: Payload


class ContextMeasured(Event):
    """How full the model's context is."""

    used: int
    size: int
    measured: bool


class CompactionAsked(Event):
    """Someone wants older messages to be replaced by a summary."""

    instructions: str
    by: Who


class CompactionSkipped(Event):
    """No summary came about; the history is as it was."""

    why: str


class CompactionSet(Event):
    """From here on, history is compacted when this share of the context is used; without one, never by itself."""

    threshold: float | None
    by: Who


class HistoryCompacted(Event):
    """Older messages were replaced, for the model, by a summary; the log keeps them."""

    trigger: Literal["threshold", "asked", "overflow"]
    before: int
    after: int
    upto: int
    summary: Payload


class ExtensionNoted(Event):
    """Something that an extension wrote; whoever does not know it may ignore it."""

    extension: str
    data: Mapping[str, JsonValue]


PROGRAM_NOTES: Final = "program"
"""The extension under which an embedding program writes notes into a session's history."""

ModelEvent = ModelRequested | ModelResponded | ModelFailed
"""A request to a provider and its end."""

ProgramEvent = ProgramSaved | ProgramFinished
"""A program that waits inside a call, and its end."""

ContextEvent = InstructionsPinned | ContextMeasured | CompactionAsked | CompactionSkipped | CompactionSet | HistoryCompacted
"""What the model has before it, and how that is kept small."""

WorkEvent = ModelEvent | ProgramEvent | ContextEvent | ExtensionNoted
"""An agent's own work."""


class BudgetWarned(Event):
    """Most of a budget is used up."""

    kind: BudgetKind
    used: float
    limit: float


class BudgetExhausted(Event):
    """A budget is used up; the session parks."""

    kind: BudgetKind
    used: float
    limit: float


class BudgetRaised(Event):
    """Someone allowed more."""

    kind: BudgetKind
    limit: float
    by: Who


class SpendingCounted(Event):
    """What the sessions that share this one's budget have used; it counts here as well, in place of what was counted before."""

    usage: Usage


class WorkTimed(Event):
    """Seconds of work that count against the budget."""

    seconds: NonNegativeFloat


BudgetEvent = BudgetWarned | BudgetExhausted | BudgetRaised | SpendingCounted | WorkTimed
"""Budgets are used, used up and raised."""


RefusalKind = Literal["key", "endpoint", "host", "malformed"]
"""Why a request was refused: a key that is not the session's, something not listed at a provider, another host, or no proper request."""


class RefusedRequest(Frozen):
    """Refused requests that are alike. Neither body nor query is kept, and of a key only its mask."""

    kind: RefusalKind
    host: str = ""
    method: str = ""
    path: str = ""
    reason: str = ""
    key: str = ""
    count: NonNegativeInt = 1


class RequestsRefused(Event):
    """The proxy refused requests that came from inside; `more` were too many to be listed one by one."""

    turn: TurnId | None = None
    requests: tuple[RefusedRequest, ...] = ()
    more: NonNegativeInt = 0


class ReportedUse(Frozen):
    """A tool and its arguments as the agent wrote them, masked and cut."""

    tool: str
    arguments: str = ""


class ToolUsesReported(Event):
    """The agent says that it used tools of its own, which do not go through the gate; this is its own account, and proves nothing.

    `more` were too many to be listed one by one.
    """

    turn: TurnId
    uses: tuple[ReportedUse, ...] = ()
    more: NonNegativeInt = 0


ConfinedEvent = RequestsRefused | ToolUsesReported
"""What happened beside the gate: refused by the proxy, or told by the agent."""
