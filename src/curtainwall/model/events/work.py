"""An agent's own work: its model requests, its programs, its budgets, and what a confined agent did beside the gate."""

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
    """An agent's program that waits inside a call. A higher `step` is a later place in the same program."""

    program: str
    step: int
    state: Payload


class ProgramSaved(Event):
    """The state of an agent's program when it made this call; written together with the ask or the permit."""

    turn: TurnId
    call: CallId
    program: SavedProgram


class ProgramFinished(Event):
    """An agent's program ended; `shown` is the result that the model gets."""

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
    """The provider's response, raw and normalised."""

    turn: TurnId
    request: str
    raw: Payload
    normalised: Payload
    usage: Usage
    stop_reason: str = ""


class ModelFailed(Event):
    """A request failed, wholly or in part, for the reason in `failure`. Its usage is at best an estimate."""

    turn: TurnId
    request: str
    failure: str
    usage: Usage = Usage()


PROGRAM_INSTRUCTIONS: Final = "<program>"
"""Stands for a file where the instructions are those of the program that opened the session; no file has this name."""


class InstructionsPinned(Event):
    """A workspace's instructions for agents as they were when read; the agent follows this text even if the file changes."""

    path: str
    digest: Digest
    text: Payload


class ContextMeasured(Event):
    """How full the model's context is."""

    used: int
    size: int
    measured: bool


class CompactionAsked(Event):
    """A summary in place of the older messages was requested."""

    instructions: str
    by: Who


class CompactionSkipped(Event):
    """No summary was made; the history is unchanged."""

    why: str


class CompactionSet(Event):
    """History is now compacted when this share of the context is used; without a share, only on request."""

    threshold: float | None
    by: Who


class HistoryCompacted(Event):
    """In the model's history, older messages were replaced by a summary; the log keeps them."""

    trigger: Literal["threshold", "asked", "overflow"]
    before: int
    after: int
    upto: int
    summary: Payload


class ExtensionNoted(Event):
    """A note of an extension; readers that do not know the extension may ignore it."""

    extension: str
    data: Mapping[str, JsonValue]


PROGRAM_NOTES: Final = "program"
"""The extension under which an embedding program writes notes into a session's history."""

ModelEvent = ModelRequested | ModelResponded | ModelFailed
"""A request to a provider and its end."""

ProgramEvent = ProgramSaved | ProgramFinished
"""A program that waits inside a call, and its end."""

ContextEvent = InstructionsPinned | ContextMeasured | CompactionAsked | CompactionSkipped | CompactionSet | HistoryCompacted
"""The model's context, and how it is kept small."""

WorkEvent = ModelEvent | ProgramEvent | ContextEvent | ExtensionNoted
"""An agent's own work."""


class BudgetWarned(Event):
    """A budget is nearly used up."""

    kind: BudgetKind
    used: float
    limit: float


class BudgetExhausted(Event):
    """A budget is used up; the session parks."""

    kind: BudgetKind
    used: float
    limit: float


class BudgetRaised(Event):
    """A budget was raised."""

    kind: BudgetKind
    limit: float
    by: Who


class SpendingCounted(Event):
    """The usage of the sessions that share this one's budget; it counts here too, and replaces the previous figures."""

    usage: Usage


class WorkTimed(Event):
    """Seconds of work that count against the budget."""

    seconds: NonNegativeFloat


BudgetEvent = BudgetWarned | BudgetExhausted | BudgetRaised | SpendingCounted | WorkTimed
"""The use of budgets: time spent, warnings, exhaustion, raises."""


RefusalKind = Literal["key", "endpoint", "host", "malformed"]
"""Why a request was refused: a foreign key, a path that the provider does not list, another host, or a malformed request."""


class RefusedRequest(Frozen):
    """A group of similar refused requests. Neither body nor query is kept, and only the mask of a key."""

    kind: RefusalKind
    host: str = ""
    method: str = ""
    path: str = ""
    reason: str = ""
    key: str = ""
    count: NonNegativeInt = 1


class RequestsRefused(Event):
    """The proxy refused requests of the agent; `more` counts those past the limit of the list."""

    turn: TurnId | None = None
    requests: tuple[RefusedRequest, ...] = ()
    more: NonNegativeInt = 0


class ReportedUse(Frozen):
    """A tool and its arguments as the agent wrote them, masked and cut."""

    tool: str
    arguments: str = ""


class ToolUsesReported(Event):
    """The agent reported using its own tools, which do not go through the gate. This is its own account and proves nothing.

    `more` counts those past the limit of the list.
    """

    turn: TurnId
    uses: tuple[ReportedUse, ...] = ()
    more: NonNegativeInt = 0


ConfinedEvent = RequestsRefused | ToolUsesReported
"""Actions beside the gate: refused by the proxy, or reported by the agent."""
