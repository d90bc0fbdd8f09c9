"""Calls that never become a subject: what the log holds of them."""

import json

from pydantic import JsonValue

from curtainwall.model import SYSTEM, BadCall, CallId, Digest, RefuseCall, Subject, ToolEffect, ToolHost, TurnId, canonical_json, denial

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
