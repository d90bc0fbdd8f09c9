"""An agent's own work: what it asked models, what it ran and what became of its history."""

from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue

from curtainwall.model.blobs import Payload
from curtainwall.model.budgets import Usage
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


ModelEvent = ModelRequested | ModelResponded | ModelFailed
"""A request to a provider and its end."""

ProgramEvent = ProgramSaved | ProgramFinished
"""A program that waits inside a call, and its end."""

ContextEvent = InstructionsPinned | ContextMeasured | CompactionAsked | CompactionSkipped | CompactionSet | HistoryCompacted
"""What the model has before it, and how that is kept small."""

WorkEvent = ModelEvent | ProgramEvent | ContextEvent | ExtensionNoted
"""An agent's own work."""
