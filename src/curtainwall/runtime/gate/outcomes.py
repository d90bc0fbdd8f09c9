"""Records how calls end: the outcome of one that ran, and the refusal of one that never became a subject."""

import asyncio
import json
from contextlib import suppress

from pydantic import JsonValue

from curtainwall.model import (
    NOT_KEPT,
    SYSTEM,
    Answer,
    BadCall,
    Blobs,
    Broken,
    CallFinished,
    CallId,
    CallPermitted,
    CurtainwallError,
    Digest,
    Effect,
    FinishCall,
    NotFound,
    Payload,
    RefuseCall,
    Subject,
    ToolEffect,
    ToolHost,
    ToolResult,
    TryLater,
    TurnId,
    Verdict,
    canonical_json,
    denial,
)
from curtainwall.runtime.results import keep, load, shorten
from curtainwall.runtime.sessions.actor import Actor


async def record_outcome(actor: Actor, permit: CallPermitted, result: ToolResult, blobs: Blobs, *, inspects: bool) -> JsonValue:
    """Log a call's outcome, unless the tool did so itself, and return what its agent is shown."""
    if result.is_logged and permit.call not in actor.state.calls:
        return result.value
    try:
        return await finish_call(actor, permit, result, blobs, inspects=inspects)
    except NotFound:
        # The tool was logging the outcome when the caller stopped waiting.
        if not result.is_logged:
            raise
        return result.value


async def finish_call(actor: Actor, permit: CallPermitted, result: ToolResult, blobs: Blobs, *, inspects: bool = False) -> JsonValue:
    """Log a call's outcome, complete and as shown to its agent, and return the latter."""
    shown, fault = shorten(result.value), None
    try:
        stored = await keep(result.value, blobs)
    except (TryLater, Broken, asyncio.CancelledError) as error:
        # The call ran, so its outcome is kept; only its output is incomplete.
        stored, fault = Payload(inline=NOT_KEPT), error
    command = FinishCall(
        by=SYSTEM,
        call=permit.call,
        permit=permit.permit,
        ok=result.ok,
        result=stored,
        shown=None if shown is result.value and fault is None else Payload(inline=shown),
    )
    if fault is not None:
        with suppress(CurtainwallError):
            actor.owe(command)
        raise fault
    if inspects:
        # A read changes nothing, so nobody waits until its outcome is durable. Whatever the session does next is written after it.
        actor.owe(command)
    else:
        await write_outcome(actor, command)
    return shown


async def write_outcome(actor: Actor, outcome: FinishCall) -> None:
    """Write an outcome. One that cannot be written now is owed, because a call without one would count as running."""
    try:
        await actor.submit(outcome)
    except (TryLater, Broken):
        actor.owe(outcome)
        raise


def shared_outcome(call: CallId, finished: CallFinished, blobs: Blobs) -> Answer:
    """Return a call's outcome as the answer to another call that had joined it."""
    value = load(finished.shown or finished.result, blobs)
    complete = None if finished.shown is None else load(finished.complete, blobs)
    verdict = Verdict(effect=Effect.ALLOW, because=(), reason="it shares the outcome of the same call")
    return Answer(call=call, verdict=verdict, result=ToolResult(ok=finished.ok, value=value), complete=complete)


_LONGEST_ARGUMENTS = 8_192
_LONGEST_NAME = 200


def refusal(tools: ToolHost, call: CallId, tool: str, arguments: JsonValue, turn: TurnId | None, bad: BadCall) -> RefuseCall:
    """Return the denial of a call, with its arguments masked and shortened."""
    # The message may quote an argument, and nothing wrong with that may keep the denial out of the log.
    verdict = denial(bad.rule, str(tools.masked(_storable(str(bad)))))
    name = str(tools.masked(_storable(tool)))[:_LONGEST_NAME]
    raw = _storable_arguments(tools, arguments)
    subject = Subject(tool=name, effect=ToolEffect.SEND, raw=raw, canonical={}, resources=(), digest=Digest(""))
    return RefuseCall(by=SYSTEM, call=call, subject=subject, verdict=verdict, turn=turn)


def _storable_arguments(tools: ToolHost, arguments: JsonValue) -> dict[str, JsonValue]:
    """Return refused arguments in a form that the log can hold."""
    try:
        # Measure first: arguments that are not kept need not be masked.
        if len(canonical_json(arguments)) >= _LONGEST_ARGUMENTS:
            return {"": "too long to keep"}
        masked = tools.masked(arguments)
        raw: dict[str, JsonValue] = masked if isinstance(masked, dict) else {"": masked}
        json.dumps(raw, ensure_ascii=False).encode()
    except Exception:  # noqa: BLE001 - whatever is wrong with the arguments, their refusal is logged
        return {"": "nothing that could be kept"}
    return raw


def _storable(text: str) -> str:
    """Return a text without lone surrogates, which cannot be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()
