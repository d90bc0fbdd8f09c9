"""The protocols around a call at the gate: who makes it, who may influence it, and who runs it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from curtainwall.model.commands import HookSays
from curtainwall.model.events.calls import CallPermitted
from curtainwall.model.events.work import SavedProgram
from curtainwall.model.frozen import Frozen
from curtainwall.model.hooks import HookEvent
from curtainwall.model.ids import CallId, SessionId, TurnId
from curtainwall.model.presence import Presence
from curtainwall.model.subjects import Subject
from curtainwall.model.tools import Place, Prepared, ToolResult, ToolSpec
from curtainwall.model.verdicts import Verdict


class ToolHost(Protocol):
    """The tools: their catalogue, what a call means, and how it runs."""

    def find(self, tool: str) -> ToolSpec | None:
        """Return the catalogue's entry for `server.tool`."""
        ...

    def prepare(self, tool: str, arguments: JsonValue, place: Place) -> Prepared:
        """Validate the arguments, resolve their meaning, and mask secrets; raise `BadCall`."""
        ...

    def masked(self, value: JsonValue) -> JsonValue:
        """Return the value with every secret masked, for the log."""
        ...

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        """Run the call with its canonical arguments only."""
        ...


class HookReply(Frozen):
    """The response of hooks to an event: a stricter verdict, other arguments, context for the agent, or nothing.

    `blocked` says why the event must not proceed: the message is refused, the agent has to continue, nothing is compacted. `stopped` says
    why the agent must stop altogether. `warnings` are for people.
    """

    says: HookSays | None = None
    arguments: Mapping[str, JsonValue] | None = None
    context: str = ""
    blocked: str | None = None
    stopped: str | None = None
    warnings: tuple[str, ...] = ()


class Hooks(Protocol):
    """The user's programs around calls and sessions."""

    async def before_call(self, subject: Subject, place: Place) -> HookReply:
        """Return the hooks' demands on this call."""
        ...

    async def after_call(self, subject: Subject, result: ToolResult, place: Place) -> HookReply:
        """Report the outcome to the hooks, which cannot change it."""
        ...

    async def tell(self, event: HookEvent, place: Place) -> HookReply:
        """Report another event to the hooks, before or after it happens."""
        ...


class Approver(Protocol):
    """An automatic approver: it either approves an ask or leaves it to humans."""

    async def approves(self, subject: Subject, human_words: Sequence[str]) -> str | None:
        """Return the approver's name if it approves, or None to leave the ask to humans."""
        ...


class CallRequest(Frozen):
    """An agent's request to the gate; with `server`, the caller may only use the tools of that server."""

    tool: str
    arguments: JsonValue
    call: CallId | None = None
    turn: TurnId | None = None
    by_house: bool = False
    server: str = ""
    unclear: str = ""
    """Why the arguments are ambiguous, if the parser found them so; such a call is denied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The gate's answer: a result, a refusal with its rules, or the news that a human has to answer first.

    `context` is what hooks add for the agent; `stopped` is why a hook stops it. `by_human` means that a person approved this very call.
    """

    call: CallId
    verdict: Verdict
    result: ToolResult | None = None
    waiting: bool = False
    context: str = ""
    stopped: str | None = None
    by_human: bool = False
    complete: JsonValue = None
    """The whole value if the result is shortened; for programs, the user's and the agent's, never for a model."""


Save = Callable[[], Awaitable[SavedProgram]]
"""Returns the state of a program right before a call."""


AskGate = Callable[[SessionId, CallRequest, Presence], Awaitable[Answer]]
"""Requests a further call that follows from the first one: `Gate.request`, which waits."""


class Gate(Protocol):
    """The only way out. Cancelling a request drops the call; but if its agent has left, its ask stays open and the answer is kept."""

    async def request(
        self,
        session: SessionId,
        request: CallRequest,
        *,
        wait: bool = True,
        save: Save | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        """Take a call through the ten steps; if a human is asked, wait for the answer, or return at once with `waiting`.

        `save` returns the state of the calling program right before the call, and is called only if that has to be stored. `presence` tells
        what a cancelled request means; by default, that the call is no longer needed.
        """
        ...

    async def resume(self, session: SessionId, call: CallId, arguments: Mapping[str, JsonValue] | None = None) -> Answer:
        """Continue a call that was asked about: run it if it is granted by now, or return at once with `waiting` if the ask is still open.

        The log has the arguments masked, so a call with a masked value can run only if its agent still has the real `arguments`.
        """
        ...

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        """Drop a call that is no longer awaited."""
        ...
