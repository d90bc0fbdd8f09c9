"""The port to a language model: the conversation that it is given, the reply that it streams, and its faults."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import Field, JsonValue, TypeAdapter

from curtainwall.model import CurtainwallError, Frozen, Usage


class UserMessage(Frozen):
    """What people said, or what was put beside it as context; for the model both come from the user."""

    kind: Literal["human"] = "human"
    text: str
    is_context: bool = Field(default=False, exclude_if=lambda told: not told)


class Program(Frozen):
    """A program that the model wants to run; the id is the model's own name for that call."""

    id: str
    code: str


class AgentMessage(Frozen):
    """One whole reply of the model. `kept` is the provider library's own form of it, to be sent back to the byte."""

    kind: Literal["agent"] = "agent"
    text: str
    programs: tuple[Program, ...] = ()
    kept: JsonValue = None


class ProgramOutcome(Frozen):
    """What came of a program, as the model is told."""

    kind: Literal["program"] = "program"
    id: str
    text: str


ConversationItem = Annotated[UserMessage | AgentMessage | ProgramOutcome, Field(discriminator="kind")]
"""One step of a conversation."""

ITEMS: TypeAdapter[tuple[ConversationItem, ...]] = TypeAdapter(tuple[ConversationItem, ...])


@dataclass(frozen=True, slots=True)
class Prompt:
    """Everything that a model is given for one reply.

    `replies` counts the model's replies in this session so far, whatever was compacted since. Without `may_run`, no program is wanted.
    """

    system: str
    items: Sequence[ConversationItem]
    replies: int = 0
    may_run: bool = True


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of text as it comes."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A whole reply, with what the provider really sent and what it cost."""

    said: AgentMessage
    raw: JsonValue
    usage: Usage
    stop_reason: str = ""


@dataclass(frozen=True, slots=True)
class ModelRetry:
    """The model gave no reply and is asked once more: which try that is, of how many, after how many seconds, and why."""

    attempt: int
    tries: int
    seconds: float
    why: str

    def __str__(self) -> str:
        return f"trying again in {max(1, round(self.seconds))} s ({self.attempt} of {self.tries}): {self.why}"


FaultKind = Literal["busy", "silent", "unreachable", "overflow", "key", "rejected"]


class ModelFault(CurtainwallError):
    """A model gave no whole reply: why, in words for the user, and whether trying again can help."""

    def __init__(self, kind: FaultKind, message: str, *, retry_after: float | None = None, is_absent: bool = False) -> None:
        super().__init__(message)
        self.kind: FaultKind = kind
        self.retry_after = retry_after
        self.is_absent = is_absent
        """Nothing runs on this machine where the model should be, which waiting seldom changes."""

    @property
    def passes(self) -> bool:
        """Tell whether the same request may succeed a little later."""
        return self.kind in ("busy", "silent", "unreachable")


class LanguageModel(Protocol):
    """Something that replies. Closing the generator early closes what is upstream."""

    @property
    def name(self) -> str:
        """Return the model as the user names it, such as `anthropic:claude-sonnet-5`."""
        ...

    @property
    def context_size(self) -> int:
        """Return how many tokens fit."""
        ...

    def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelRetry | ModelReply]:
        """Yield text as it comes and then, last, the whole reply; raise `ModelFault`. `ModelRetry` comes before any text."""
        ...
