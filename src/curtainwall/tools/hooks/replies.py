"""What hooks say: exit codes, plain text and JSON of one hook, and the one reply that several make together."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, cast

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from curtainwall.facts import quoted, read_json
from curtainwall.model import HookReply, HookSays, canonical_json, explain_invalid
from curtainwall.tools.hooks.process import HookRun

LONGEST: Final = 10_000
_CONTEXT_IS_PLAIN: Final = frozenset({"UserPromptSubmit", "SessionStart"})
_MAY_BLOCK: Final = frozenset({"UserPromptSubmit", "Stop", "PreCompact"})
_BLOCKS: Final = 2
_GUARD: Final = "PreToolUse"
_WHAT_TO_PRINT: Final = "print nothing or one JSON object on stdout, and log lines on stderr"
_STARTS: Final = re.compile(r"^[\ufeff \t]*+(?=\{)", re.MULTILINE)
_MOST_STARTS: Final = 20


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What one hook says. `failure` says what went wrong with it, `refusal` why the event must not go its way."""

    failure: str = ""
    effect: Literal["ask", "deny"] | None = None
    refusal: str | None = None
    arguments: dict[str, JsonValue] | None = None
    context: str = ""
    stopped: str | None = None
    warning: str = ""


class _Specific(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    hookEventName: str | None = None  # noqa: N815 - these are the format's spellings, here and below
    permissionDecision: Literal["allow", "ask", "deny"] | None = None  # noqa: N815 - as above
    permissionDecisionReason: str | None = None  # noqa: N815 - as above
    updatedInput: dict[str, JsonValue] | None = None  # noqa: N815 - as above
    additionalContext: str | None = None  # noqa: N815 - as above


class _Output(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    decision: Literal["block", "approve"] | None = None
    reason: str | None = None
    stopReason: str | None = None  # noqa: N815 - as above
    suppressOutput: bool | None = None  # noqa: N815 - as above
    systemMessage: str | None = None  # noqa: N815 - as above
    hookSpecificOutput: _Specific | None = None  # noqa: N815 - as above
    goes_on: bool | None = None


_SPECIFIC: Final = frozenset(_Specific.model_fields)
_ANSWERS: Final = frozenset(_Output.model_fields) - {"goes_on"} | {"continue"}
# Claude Code knows these as well; there is nothing here that they could do.
_HARMLESS: Final = frozenset({"terminalSequence"})


def read_reply(event: str, ran: HookRun) -> HookAnswer:
    """Return what a hook says by how it ended and what it printed."""
    if ran.failure:
        return HookAnswer(failure=ran.failure)
    complaint = cut(ran.err.decode(errors="replace").strip())
    if ran.code == _BLOCKS:
        return HookAnswer(effect="deny", refusal=_reason_in(event, ran.out) or complaint or "it gave no reason")
    if ran.code:
        return HookAnswer(failure=f"it ended with exit code {ran.code}{f': {complaint}' if complaint else ''}")
    try:
        text = ran.out.decode().strip()
    except UnicodeDecodeError:
        return HookAnswer(failure="it printed something that is no UTF-8 text")
    if not text.startswith("{"):
        return _read_plain(event, text)
    try:
        return _answer(event, _parsed(event, text))
    except (ValueError, RecursionError) as fault:
        return HookAnswer(failure=f"its JSON cannot be used: {_plain(fault)}; {_WHAT_TO_PRINT}")


def _read_plain(event: str, text: str) -> HookAnswer:
    """Return what output says that does not begin with an answer.

    INVARIANT: a guard that has said something which cannot be understood has not said yes, and no answer is passed over in silence.
    """
    if text and event == _GUARD:
        return HookAnswer(failure=f"its output is not a JSON object; {_WHAT_TO_PRINT}")
    if _holds_answer(text):
        return HookAnswer(failure=f"it printed an answer among other text, so the answer does not count; {_WHAT_TO_PRINT}")
    return HookAnswer(context=cut(text) if event in _CONTEXT_IS_PLAIN else "")


def _holds_answer(text: str) -> bool:
    """Tell whether an answer begins on one of the first lines that could begin one."""
    for start in islice(_STARTS.finditer(text), _MOST_STARTS):
        try:
            found = cast("dict[str, object]", json.JSONDecoder().raw_decode(text, start.end())[0])
        except (ValueError, RecursionError):
            continue
        if (
            found.get("decision") in ("block", "approve")
            or type(found.get("continue")) is bool
            or type(found.get("hookSpecificOutput")) is dict
        ):
            return True
    return False


def merge(event: str, said: Sequence[tuple[str, HookAnswer]]) -> HookReply:
    """Return the one reply of several hooks, given in the order in which they are configured: the strictest wins."""
    reply = HookReply(
        context="\n".join(each.context for _, each in said if each.context),
        stopped=next((each.stopped for _, each in said if each.stopped is not None), None),
        warnings=tuple(each.warning for _, each in said if each.warning),
    )
    if event == "PreToolUse":
        return _merge_before_call(reply, said)
    refusals = [each.refusal for _, each in said if each.refusal is not None]
    if event in _MAY_BLOCK and refusals:
        return reply.model_copy(update={"blocked": "\n".join(refusals)})
    if event == "PostToolUse" and refusals:
        # The call has run; all that a refusal can do is tell the agent.
        return reply.model_copy(update={"context": "\n".join(filter(None, (*refusals, reply.context)))})
    return reply


def may_refuse(event: str) -> bool:
    """Tell whether a refusal means anything for an event."""
    return event in _MAY_BLOCK or event in {"PreToolUse", "PostToolUse"}


def cut(text: str) -> str:
    """Return a text of bounded length that can be stored, with the cut stated."""
    sound = text.encode("utf-8", "replace").decode()
    return sound if len(sound) <= LONGEST else f"{sound[:LONGEST]} …[{len(sound) - LONGEST} characters cut]"


def _merge_before_call(reply: HookReply, said: Sequence[tuple[str, HookAnswer]]) -> HookReply:
    for name, each in said:
        # INVARIANT: a hook that failed has not said yes.
        if each.failure or each.effect == "deny":
            reason = f"the hook `{name}` failed: {each.failure}" if each.failure else each.refusal or ""
            return reply.model_copy(update={"says": HookSays(effect="deny", hook=name, reason=reason)})
    asking = [(name, each) for name, each in said if each.effect == "ask"]
    if asking:
        # Each hook that asks has to be answered, so a grant for one of them must not answer for two.
        together, reasons = "+".join(name for name, _ in asking), "; ".join(each.refusal or "" for _, each in asking)
        reply = reply.model_copy(update={"says": HookSays(effect="ask", hook=together, reason=cut(reasons))})
    return _with_arguments(reply, said)


def _with_arguments(reply: HookReply, said: Sequence[tuple[str, HookAnswer]]) -> HookReply:
    rewritten = {canonical_json(each.arguments): each.arguments for _, each in said if each.arguments is not None}
    if len(rewritten) > 1:
        names = ", ".join(f"`{name}`" for name, each in said if each.arguments is not None)
        both = HookSays(effect="deny", hook="ambiguous", reason=f"hooks rewrote the arguments in different ways: {names}")
        return reply.model_copy(update={"says": both})
    return reply.model_copy(update={"arguments": next(iter(rewritten.values()), None)})


def _answer(event: str, output: _Output) -> HookAnswer:
    specific = output.hookSpecificOutput or _Specific()
    if specific.hookEventName not in {None, event}:
        raise ValueError(f"it answers `{specific.hookEventName}` and was told of `{event}`")
    is_before = event == "PreToolUse"
    stopped = cut(output.stopReason or "a hook stopped the agent") if output.goes_on is False else None
    effect: Literal["ask", "deny"] | None = None
    if output.decision == "block" or (is_before and (specific.permissionDecision == "deny" or stopped is not None)):
        effect = "deny"
    elif is_before and specific.permissionDecision == "ask":
        effect = "ask"
    reason = specific.permissionDecisionReason or output.reason or stopped or ""
    if specific.updatedInput is not None:
        canonical_json(specific.updatedInput)  # a number beyond all numbers has no spelling and is refused here
    return HookAnswer(
        effect=effect,
        refusal=None if effect is None else cut(reason) or "it gave no reason",
        arguments=specific.updatedInput if is_before else None,
        context=cut(specific.additionalContext or ""),
        stopped=stopped,
        warning=cut(output.systemMessage or ""),
    )


def _reason_in(event: str, out: bytes) -> str:
    """Return the reason that a hook which blocks by its exit code gives in JSON, where it does."""
    try:
        text = out.decode().strip()
        return (_answer(event, _parsed(event, text)).refusal or "") if text.startswith("{") else ""
    except (ValueError, RecursionError):
        return ""


def _parsed(event: str, text: str) -> _Output:
    fields = cast("dict[str, JsonValue]", read_json(text))
    if event == _GUARD:
        _require_known(fields)
    # `continue` is a word of the language.
    return _Output.model_validate({**fields, "goes_on": fields.get("continue")})


def _require_known(fields: Mapping[str, JsonValue]) -> None:
    """Raise ValueError for a field that nobody would read: a guard may have meant its denial by it."""
    specific = fields.get("hookSpecificOutput")
    unknown = [*fields.keys() - _ANSWERS - _HARMLESS]
    unknown += specific.keys() - _SPECIFIC if isinstance(specific, dict) else []
    for key in sorted(unknown):
        where = "must be inside `hookSpecificOutput`" if key in _SPECIFIC else "must be outside `hookSpecificOutput`"
        raise ValueError(f"{quoted(key)} {where if key in _SPECIFIC | _ANSWERS else 'is not a field of an answer'}")


def _plain(fault: Exception) -> str:
    if isinstance(fault, RecursionError):
        return "it is nested too deeply"
    if isinstance(fault, ValidationError):
        place, words = explain_invalid(fault)
        key = ".".join("continue" if part == "goes_on" else str(part) for part in place)
        return f"{f'`{key}`' if key else 'it'} {words}"
    return str(fault)
