"""What the log holds of a call: what came of one that ran, and why another never became a subject."""

import asyncio
import json
from contextlib import suppress

from pydantic import JsonValue

from curtainwall.model import (
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
    """Log what came of a call, unless the tool did so itself, and return what its agent is shown."""
    if result.is_logged and permit.call not in actor.state.calls:
        return result.value
    try:
        return await finish_call(actor, permit, result, blobs, inspects=inspects)
    except NotFound:
        # It was on its way into the log when nobody wanted to wait any longer.
        if not result.is_logged:
            raise
        return result.value


async def finish_call(actor: Actor, permit: CallPermitted, result: ToolResult, blobs: Blobs, *, inspects: bool = False) -> JsonValue:
    """Log what came of a call: whole, and as its agent is shown it, which is returned."""
    shown, fault = shorten(result.value), None
    try:
        kept = await keep(result.value, blobs)
    except (TryLater, Broken, asyncio.CancelledError) as unkept:
        # It ran, so its outcome is what it was; only what it said is not whole any more.
        kept, fault = Payload(inline="it could not be kept"), unkept
    command = FinishCall(
        by=SYSTEM,
        call=permit.call,
        permit=permit.permit,
        ok=result.ok,
        result=kept,
        shown=None if shown is result.value and fault is None else Payload(inline=shown),
    )
    if fault is not None:
        with suppress(CurtainwallError):
            actor.owe(command)
        raise fault
    if inspects:
        # A look changes nothing, so nobody waits until its outcome is durable; whatever the session does next is written after it.
        actor.owe(command)
    else:
        await write_outcome(actor, command)
    return shown


async def write_outcome(actor: Actor, outcome: FinishCall) -> None:
    """Write an outcome down; one that cannot be written now is owed, because a call without one would count as running."""
    try:
        await actor.submit(outcome)
    except (TryLater, Broken):
        actor.owe(outcome)
        raise


def shared_outcome(call: CallId, finished: CallFinished, blobs: Blobs) -> Answer:
    """Return the outcome of a call as the answer to another one that had joined it."""
    value = load(finished.shown or finished.result, blobs)
    verdict = Verdict(effect=Effect.ALLOW, because=(), reason="it shares the outcome of the same call")
    return Answer(call=call, verdict=verdict, result=ToolResult(ok=finished.ok, value=value))


_LONGEST_ARGUMENTS = 8_192
_LONGEST_NAME = 200


def refusal(tools: ToolHost, call: CallId, tool: str, arguments: JsonValue, turn: TurnId | None, bad: BadCall) -> RefuseCall:
    """Return the denial of a call, with what it said masked and short."""
    # The words may quote an argument, and whatever is wrong with those must not keep the denial out of the log.
    verdict = denial(bad.rule, str(tools.masked(_storable(str(bad)))))
    name = str(tools.masked(_storable(tool)))[:_LONGEST_NAME]
    raw = _kept(tools, arguments)
    subject = Subject(tool=name, effect=ToolEffect.SEND, raw=raw, canonical={}, resources=(), digest=Digest(""))
    return RefuseCall(by=SYSTEM, call=call, subject=subject, verdict=verdict, turn=turn)


def _kept(tools: ToolHost, arguments: JsonValue) -> dict[str, JsonValue]:
    """Return refused arguments as the log can hold them."""
    try:
        # Measured first: what is not kept need not be masked either.
        if len(canonical_json(arguments)) >= _LONGEST_ARGUMENTS:
            return {"": "too long to keep"}
        written = tools.masked(arguments)
        raw: dict[str, JsonValue] = written if isinstance(written, dict) else {"": written}
        json.dumps(raw, ensure_ascii=False).encode()
    except Exception:  # noqa: BLE001 - whatever is wrong with the words, that they were refused is logged
        return {"": "nothing that could be kept"}
    return raw


def _storable(text: str) -> str:
    """Return a text without half characters, which no encoding holds."""
    return text.encode("utf-8", "backslashreplace").decode()
