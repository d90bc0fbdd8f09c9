"""What the gate said, as the result of an MCP call. A refusal is a result too: it names the rule, and never an approval."""

import json
import re
from typing import Any, cast

from mcp_types.version import is_version_at_least
from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

from curtainwall.model import Answer, Closed, CurtainwallError, NotReady, TryLater, Verdict
from curtainwall.tools.mcp_in.greetings import stamped

_STRUCTURED_SINCE = "2025-06-18"
_HINTS = {
    "unknown-tool": "call one of the tools in the list",
    "invalid-arguments": "correct the arguments as the tool's schema says",
    "no-rule": "work inside the workspace, or with what the human has listed",
    "protected-path": "no rule and no human can allow this path; use another one",
    "denied-by-human": "do not ask for the same again; say what you need and why, or find another way",
    "approval-expired": "ask again if it is still needed",
    "call-dropped": "call again if it is still needed",
    "call-budget": "this session has made as many calls as it may; a human can raise the limit",
    "repeated-call": "change the call, or wait a minute",
    "ask-storm": "wait a minute, then ask for what matters most",
    "masked-arguments": "leave the masked text where it is and edit the lines around it",
    "known-credential": "leave the value out; where a tool takes a credential, give it the credential's name",
}
_OTHERWISE = "the same call will be refused again: use what the rule leaves open (the workspace is free), or tell the human what you need"
_APPROVAL = re.compile(r"\s*\(?approval\s+`?[0-9a-z]{6}`?\)?", re.IGNORECASE)


def result_of(answer: Answer, version: str) -> bytes:
    """Return the encoded result of a call that came back from the gate."""
    # What hooks want the agent to know stands beside the result, never in it.
    stop = None if answer.stopped is None else f"You must not go on: {answer.stopped}"
    besides = tuple(text for text in (answer.context, stop) if text)
    if answer.result is not None:
        return _encoded(answer.result.value, version, *besides, is_error=not answer.result.ok)
    if answer.waiting:
        words = "A human is asked and has not answered yet. Call again later with the same arguments to learn the answer."
        return _encoded(words, version, is_error=True)
    return _encoded(refusal(answer.verdict), version, *besides, is_error=True)


def failure_of(error: CurtainwallError, version: str) -> bytes:
    """Return the encoded result of a call that the gate could not take."""
    match error:
        case Closed():
            words = "this session has ended; no call runs any more"
        case NotReady():
            words = "the session is not ready yet; try again in a moment"
        case TryLater():
            words = "nothing was done because of something that passes; try again in a moment"
        case _:
            words = "the call could not be made, and nothing says that it ran"
    return _encoded(words, version, is_error=True)


def refusal(verdict: Verdict) -> str:
    """Return a refusal in words: which rules decided, why, and what would be allowed instead."""
    rules = ", ".join(f"`{rule}`" for rule in verdict.because) or "`no-rule`"
    hint = next((_HINTS[rule] for rule in verdict.because if rule in _HINTS), _OTHERWISE)
    # INVARIANT: an agent never learns an approval's id, wherever the reason came from.
    reason = _APPROVAL.sub("", verdict.reason).strip()
    return f"Refused by {rules}{f': {reason}' if reason else ''}. Instead: {hint}."


def _encoded(value: JsonValue, version: str, *besides: str, is_error: bool) -> bytes:
    try:
        return to_json(_result(value, version, *besides, is_error=is_error), inf_nan_mode="null")
    except PydanticSerializationError:
        # A file name that is no UTF-8 reaches us as half characters, which no client could read.
        return to_json(_result(_readable(value), version, *besides, is_error=is_error), inf_nan_mode="null")


def _result(value: JsonValue, version: str, *besides: str, is_error: bool) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    result: dict[str, Any] = {"content": [{"type": "text", "text": each} for each in (text, *besides)], "isError": is_error}
    if isinstance(value, dict) and is_version_at_least(version, _STRUCTURED_SINCE):
        result["structuredContent"] = value
    return stamped(version, result)


def _readable(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {cast("str", _readable(key)): _readable(part) for key, part in value.items()}
    return [_readable(part) for part in value] if isinstance(value, list) else value
