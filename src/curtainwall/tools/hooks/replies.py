"""Read the replies of hooks from exit codes, plain text and JSON, and merge several into one."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, Literal, cast

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from curtainwall.facts import quoted, read_json
from curtainwall.model import HookReply, HookSays, canonical_json, explain_invalid, record
from curtainwall.tools.hooks.process import HookRun

LONGEST: Final = 10_000
_CONTEXT_IS_PLAIN: Final = frozenset({"UserPromptSubmit", "SessionStart"})
_MAY_BLOCK: Final = frozenset({"UserPromptSubmit", "Stop", "PreCompact"})
_BLOCKS: Final = 2
_GUARD: Final = "PreToolUse"
_WHAT_TO_PRINT: Final = "print nothing or one JSON object on stdout, and log lines on stderr"
_STARTS: Final = re.compile(r"^[\ufeff \t]*+(?=\{)", re.MULTILINE)
_MOST_STARTS: Final = 20


@record
class HookAnswer:
    """The answer of one hook. `failure` says what went wrong with the hook, `refusal` why it refuses the event."""

    failure: str = ""
    effect: Literal["ask", "deny"] | None = None
    refusal: str | None = None
    arguments: dict[str, JsonValue] | None = None
    context: str = ""
    stopped: str | None = None
    warning: str = ""


class _Specific(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", defer_build=True)

    hookEventName: str | None = None  # noqa: N815 - these are the format's spellings, here and below
    permissionDecision: Literal["allow", "ask", "deny"] | None = None  # noqa: N815 - as above
    permissionDecisionReason: str | None = None  # noqa: N815 - as above
    updatedInput: dict[str, JsonValue] | None = None  # noqa: N815 - as above
    additionalContext: str | None = None  # noqa: N815 - as above


class _Output(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", defer_build=True)

    decision: Literal["block", "approve"] | None = None
    reason: str | None = None
    stopReason: str | None = None  # noqa: N815 - as above
    suppressOutput: bool | None = None  # noqa: N815 - as above
    systemMessage: str | None = None  # noqa: N815 - as above
    hookSpecificOutput: _Specific | None = None  # noqa: N815 - as above
    goes_on: bool | None = None


_SPECIFIC: Final = frozenset(_Specific.model_fields)
_ANSWERS: Final = frozenset(_Output.model_fields) - {"goes_on"} | {"continue"}
# Claude Code knows these as well; they have no effect here.
_HARMLESS: Final = frozenset({"terminalSequence"})


def read_reply(event: str, run: HookRun) -> HookAnswer:
    """Return a hook's answer from its exit code and output."""
    if run.failure:
        return HookAnswer(failure=run.failure)
    complaint = cut(run.err.decode(errors="replace").strip())
    if run.code == _BLOCKS:
        return HookAnswer(effect="deny", refusal=_reason_in(event, run.out) or complaint or "it gave no reason")
    if run.code:
        return HookAnswer(failure=f"it ended with exit code {run.code}{f': {complaint}' if complaint else ''}")
    try:
        text = run.out.decode().strip()
    except UnicodeDecodeError:
        return HookAnswer(failure="it printed something that is no UTF-8 text")
    if not text.startswith("{"):
        return _read_text(event, text)
    try:
        return _to_answer(event, _parse(event, text))
    except (ValueError, RecursionError) as error:
        return HookAnswer(failure=f"its JSON cannot be used: {_explain(error)}; {_WHAT_TO_PRINT}")


def _read_text(event: str, text: str) -> HookAnswer:
    """Return the answer for output that does not begin with a JSON object.

    INVARIANT: a guard whose output cannot be parsed has not allowed the call, and no answer is silently ignored.
    """
    if text and event == _GUARD:
        return HookAnswer(failure=f"its output is not a JSON object; {_WHAT_TO_PRINT}")
    if _holds_answer(text):
        return HookAnswer(failure=f"it printed an answer among other text, so the answer does not count; {_WHAT_TO_PRINT}")
    return HookAnswer(context=cut(text) if event in _CONTEXT_IS_PLAIN else "")


def _holds_answer(text: str) -> bool:
    """Tell whether an answer begins on one of the first lines that open a JSON object."""
    for start in islice(_STARTS.finditer(text), _MOST_STARTS):
        try:
            candidate = cast("dict[str, object]", json.JSONDecoder().raw_decode(text, start.end())[0])
        except (ValueError, RecursionError):
            continue
        if (
            candidate.get("decision") in ("block", "approve")
            or type(candidate.get("continue")) is bool
            or type(candidate.get("hookSpecificOutput")) is dict
        ):
            return True
    return False


def merge(event: str, answers: Sequence[tuple[str, HookAnswer]]) -> HookReply:
    """Merge the answers of several hooks, in the order of configuration, into one reply; the strictest wins."""
    reply = HookReply(
        context="\n".join(answer.context for _, answer in answers if answer.context),
        stopped=next((answer.stopped for _, answer in answers if answer.stopped is not None), None),
        warnings=tuple(answer.warning for _, answer in answers if answer.warning),
    )
    if event == "PreToolUse":
        return _merge_before_call(reply, answers)
    refusals = [answer.refusal for _, answer in answers if answer.refusal is not None]
    if event in _MAY_BLOCK and refusals:
        return reply.model_copy(update={"blocked": "\n".join(refusals)})
    if event == "PostToolUse" and refusals:
        # The call has run, so a refusal can only inform the agent.
        return reply.model_copy(update={"context": "\n".join(filter(None, (*refusals, reply.context)))})
    return reply


def may_refuse(event: str) -> bool:
    """Tell whether a refusal has an effect on an event."""
    return event in _MAY_BLOCK or event in {"PreToolUse", "PostToolUse"}


def cut(text: str) -> str:
    """Return text that can be stored, truncated to a bounded length with a note of how much was cut."""
    sound = text.encode("utf-8", "replace").decode()
    return sound if len(sound) <= LONGEST else f"{sound[:LONGEST]} …[{len(sound) - LONGEST} characters cut]"


def _merge_before_call(reply: HookReply, answers: Sequence[tuple[str, HookAnswer]]) -> HookReply:
    for name, answer in answers:
        # INVARIANT: a hook that failed has not allowed the call.
        if answer.failure or answer.effect == "deny":
            reason = f"the hook `{name}` failed: {answer.failure}" if answer.failure else answer.refusal or ""
            return reply.model_copy(update={"says": HookSays(effect="deny", hook=name, reason=reason)})
    asking = [(name, answer) for name, answer in answers if answer.effect == "ask"]
    if asking:
        # Each asking hook needs its own answer, so a grant for one of them must not cover two.
        together, reasons = "+".join(name for name, _ in asking), "; ".join(answer.refusal or "" for _, answer in asking)
        reply = reply.model_copy(update={"says": HookSays(effect="ask", hook=together, reason=cut(reasons))})
    return _with_arguments(reply, answers)


def _with_arguments(reply: HookReply, answers: Sequence[tuple[str, HookAnswer]]) -> HookReply:
    rewritten = {canonical_json(answer.arguments): answer.arguments for _, answer in answers if answer.arguments is not None}
    if len(rewritten) > 1:
        names = ", ".join(f"`{name}`" for name, answer in answers if answer.arguments is not None)
        conflict = HookSays(effect="deny", hook="ambiguous", reason=f"hooks rewrote the arguments in different ways: {names}")
        return reply.model_copy(update={"says": conflict})
    return reply.model_copy(update={"arguments": next(iter(rewritten.values()), None)})


def _to_answer(event: str, output: _Output) -> HookAnswer:
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
        canonical_json(specific.updatedInput)  # raises for an infinite number, which JSON cannot express
    return HookAnswer(
        effect=effect,
        refusal=None if effect is None else cut(reason) or "it gave no reason",
        arguments=specific.updatedInput if is_before else None,
        context=cut(specific.additionalContext or ""),
        stopped=stopped,
        warning=cut(output.systemMessage or ""),
    )


def _reason_in(event: str, out: bytes) -> str:
    """Return the reason that a hook gives in JSON when it blocks by its exit code, or an empty text."""
    try:
        text = out.decode().strip()
        return (_to_answer(event, _parse(event, text)).refusal or "") if text.startswith("{") else ""
    except (ValueError, RecursionError):
        return ""


def _parse(event: str, text: str) -> _Output:
    fields = cast("dict[str, JsonValue]", read_json(text))
    if event == _GUARD:
        _require_known(fields)
    # `continue` is a Python keyword.
    return _Output.model_validate({**fields, "goes_on": fields.get("continue")})


def _require_known(fields: Mapping[str, JsonValue]) -> None:
    """Raise ValueError for an unknown field: a guard may have meant it as a denial."""
    specific = fields.get("hookSpecificOutput")
    unknown = [*fields.keys() - _ANSWERS - _HARMLESS]
    unknown += specific.keys() - _SPECIFIC if isinstance(specific, dict) else []
    for key in sorted(unknown):
        where = "must be inside `hookSpecificOutput`" if key in _SPECIFIC else "must be outside `hookSpecificOutput`"
        raise ValueError(f"{quoted(key)} {where if key in _SPECIFIC | _ANSWERS else 'is not a field of an answer'}")


def _explain(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, ValidationError):
        place, words = explain_invalid(error)
        key = ".".join("continue" if part == "goes_on" else str(part) for part in place)
        return f"{f'`{key}`' if key else 'it'} {words}"
    return str(error)
