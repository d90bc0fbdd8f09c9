"""The port to a language model: the conversation it gets, the reply it streams, and its faults."""

from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Literal, Protocol

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

from curtainwall.model import CurtainwallError, Frozen, Usage, record


class UserMessage(Frozen):
    """A message from a person, or context that was added to it; for the model both come from the user."""

    kind: Literal["human"] = "human"
    text: str
    is_context: bool = Field(default=False, exclude_if=lambda is_set: not is_set)


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
    """The outcome of a program, as the model gets it."""

    kind: Literal["program"] = "program"
    id: str
    text: str


ConversationItem = Annotated[UserMessage | AgentMessage | ProgramOutcome, Field(discriminator="kind")]
"""One step of a conversation."""

ITEMS: TypeAdapter[tuple[ConversationItem, ...]] = TypeAdapter(tuple[ConversationItem, ...], config=ConfigDict(defer_build=True))


@record
class Prompt:
    """Everything that a model gets for one reply.

    `replies` counts the model's replies in this session so far, whatever was compacted since. Without `may_run`, no program is wanted.
    """

    system: str
    items: Sequence[ConversationItem]
    replies: int = 0
    may_run: bool = True


@record
class Delta:
    """A piece of text as it streams in."""

    text: str


@record
class ModelReply:
    """A complete reply, with the provider's raw response and the cost."""

    message: AgentMessage
    raw: JsonValue
    usage: Usage
    stop_reason: str = ""


@record
class ModelRetry:
    """The model failed and is asked again: the number of the try, of how many, after how many seconds, and why."""

    attempt: int
    tries: int
    seconds: float
    why: str

    def __str__(self) -> str:
        return f"trying again in {max(1, round(self.seconds))} s ({self.attempt} of {self.tries}): {self.why}"


FaultKind = Literal["busy", "silent", "unreachable", "overflow", "key", "rejected"]


class ModelFault(CurtainwallError):
    """A model gave no complete reply. Holds the reason, worded for the user, and whether a retry can help."""

    def __init__(self, kind: FaultKind, message: str, *, retry_after: float | None = None, is_absent: bool = False) -> None:
        super().__init__(message)
        self.kind: FaultKind = kind
        self.retry_after = retry_after
        self.is_absent = is_absent
        """No model server runs at its address on this machine, which waiting seldom changes."""

    @property
    def passes(self) -> bool:
        """Tell whether the same request may succeed a little later."""
        return self.kind in ("busy", "silent", "unreachable")


class LanguageModel(Protocol):
    """A language model. Closing the generator early closes the upstream connection."""

    @property
    def name(self) -> str:
        """Return the user's name for the model, such as `anthropic:claude-sonnet-5`."""
        ...

    @property
    def context_size(self) -> int:
        """Return the size of the context in tokens."""
        ...

    def reply(self, prompt: Prompt) -> AsyncGenerator[Delta | ModelRetry | ModelReply]:
        """Yield text as it streams in and finally the complete reply; raise `ModelFault`. `ModelRetry` comes before any text."""
        ...
