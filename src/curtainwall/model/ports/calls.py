"""Where a call meets the gate: who makes it, what is around it, and who runs it."""

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
    """The catalogue and the hands: what tools there are, what a call means, and running it."""

    def find(self, tool: str) -> ToolSpec | None:
        """Return the catalogue's entry for `server.tool`."""
        ...

    def prepare(self, tool: str, arguments: JsonValue, place: Place) -> Prepared:
        """Check the arguments, find out what they mean, and mask; raise `BadCall`."""
        ...

    def masked(self, value: JsonValue) -> JsonValue:
        """Return the value with every secret masked, for the log."""
        ...

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        """Run the call with its canonical arguments only."""
        ...


class HookReply(Frozen):
    """What hooks made of an event: stricter, other arguments, something the agent should know, or nothing.

    `blocked` says why the event must not go its way: the message is not taken, the agent is not done, nothing is compacted. `stopped` says
    why the agent must not go on at all. `warnings` are for people.
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
        """Say what the hooks want for this call."""
        ...

    async def after_call(self, subject: Subject, result: ToolResult, place: Place) -> HookReply:
        """Tell the hooks what came of it; the outcome stands, whatever they do."""
        ...

    async def tell(self, event: HookEvent, place: Place) -> HookReply:
        """Tell the hooks of something else that happened, or is about to."""
        ...


class Approver(Protocol):
    """An automatic approver: it may only approve or pass on."""

    async def approves(self, subject: Subject, human_words: Sequence[str]) -> str | None:
        """Return the approver's name if it approves, None to pass the ask on to humans."""
        ...


class CallRequest(Frozen):
    """One wish of an agent at the gate; where `server` is named, whoever makes it has the tools of that one and no others."""

    tool: str
    arguments: JsonValue
    call: CallId | None = None
    turn: TurnId | None = None
    by_house: bool = False
    server: str = ""
    unclear: str = ""
    """Why the arguments have no single reading, where whoever parsed them found so; such a call is denied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the gate says back: a result, a refusal with its rules, or that a human has to be waited for.

    `context` is what hooks want the agent to know besides; `stopped` is why, by a hook's word, it must not go on. `by_human` tells that a
    person said yes to this very call.
    """

    call: CallId
    verdict: Verdict
    result: ToolResult | None = None
    waiting: bool = False
    context: str = ""
    stopped: str | None = None
    by_human: bool = False
    complete: JsonValue = None
    """The whole value where the result is shortened; for programs of the user, never for a model."""


Save = Callable[[], Awaitable[SavedProgram]]
"""Gives a program as it stands right before a call."""


AskGate = Callable[[SessionId, CallRequest, Presence], Awaitable[Answer]]
"""The way to the gate for what leads to another call: `Gate.request`, which waits."""


class Gate(Protocol):
    """The one way out. Cancelling a request drops the call; where its agent has left, an ask stays open, and its answer is kept."""

    async def request(
        self,
        session: SessionId,
        request: CallRequest,
        *,
        wait: bool = True,
        save: Save | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        """Walk the ten steps; where a human is asked, wait for the answer, or return at once with `waiting`.

        `save` gives the program that makes the call, as it stands right before it; it is called where the program has to be kept.
        `presence` tells what it means when the request is cancelled; left out, nobody wants the call any more.
        """
        ...

    async def resume(self, session: SessionId, call: CallId, arguments: Mapping[str, JsonValue] | None = None) -> Answer:
        """Go on with a call that was asked for: run it where it is granted by now, return at once with `waiting` where it is still open.

        The log holds arguments masked, so a call with a masked value can run only where its agent still has the real `arguments`.
        """
        ...

    async def drop(self, session: SessionId, call: CallId, why: str) -> None:
        """Let go of a call that nobody waits for any more."""
        ...
