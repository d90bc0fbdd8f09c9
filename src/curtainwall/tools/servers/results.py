"""What a server gave back, as one JSON value of a sane size: text stays text, and of pictures and sound only what they are is told."""

import base64
import binascii
import hashlib
import json
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.model import ToolResult
from curtainwall.tools.servers.large_entry import MOST_VALUES
from curtainwall.tools.servers.words import readable

LARGEST: Final = 4 * 1024 * 1024
"""Characters of text in one result."""

_MOST_PARTS: Final = 1_000


def result_of(told: dict[str, JsonValue]) -> ToolResult:
    """Return the result of a call."""
    if told.get("resultType", "complete") != "complete":
        return ToolResult(ok=False, value="the server wants to ask a human or a model something first, which no server may do here")
    content = told.get("content")
    room = LARGEST
    parts: list[JsonValue] = []
    for block in (content if isinstance(content, list) else [])[:_MOST_PARTS]:
        part = _part(block)
        if isinstance(part, str):
            part, room = _cut(part, room)
        parts.append(part)
    if isinstance(content, list) and len(content) > _MOST_PARTS:
        parts.append(f"[… {len(content) - _MOST_PARTS} more parts left out …]")
    return ToolResult(ok=told.get("isError") is not True, value=_joined(parts, told.get("structuredContent")))


def _joined(parts: list[JsonValue], structured: JsonValue) -> JsonValue:
    """Return the parts, with what the server says in structured form beside them where that is not the same once more."""
    plain = parts[0] if len(parts) == 1 else parts
    if structured is None:
        return plain
    if len(json.dumps(structured)) > LARGEST:
        return {"content": plain, "structured": "[… too big, left out …]"}
    if not parts or (isinstance(plain, str) and _says(plain, structured)):
        return structured
    if isinstance(structured, dict) and len(structured) == 1 and plain in structured.values():
        return plain
    return {"content": plain, "structured": structured}


def _says(text: str, structured: JsonValue) -> bool:
    try:
        may_be_same = text.lstrip()[:1] in {"{", "["} and text.count(",") <= MOST_VALUES
        return may_be_same and json.loads(text) == structured
    except (ValueError, RecursionError):
        return False


def _part(block: JsonValue) -> JsonValue:
    if not isinstance(block, dict):
        return "[something that is no content]"
    match block.get("type"):
        case "text":
            text = block.get("text")
            return readable(text) if isinstance(text, str) else ""
        case "image" | "audio" as kind:
            return {"type": kind, **_measured(block.get("data")), "mimeType": _short(block.get("mimeType"))}
        case "resource":
            inner = block.get("resource")
            held = inner if isinstance(inner, dict) else {}
            text = held.get("text")
            if isinstance(text, str):
                return readable(text)
            return {
                "type": "resource",
                "uri": _short(held.get("uri")),
                **_measured(held.get("blob")),
                "mimeType": _short(held.get("mimeType")),
            }
        case "resource_link":
            return {"type": "resource_link", **{key: _short(block.get(key)) for key in ("uri", "name", "description", "mimeType")}}
        case _:
            return "[content of a kind that is not known here]"


def _measured(data: JsonValue) -> dict[str, JsonValue]:
    """Return how big something is and its digest; what it shows stays where it is."""
    try:
        content = base64.b64decode(cast("str", data), validate=True)
    except (binascii.Error, ValueError, TypeError):
        return {"note": "it cannot be read"}
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "note": "left out"}


def _short(value: JsonValue) -> JsonValue:
    return readable(value)[:500] if isinstance(value, str) else None


def _cut(text: str, room: int) -> tuple[str, int]:
    if len(text) <= room:
        return text, room - len(text)
    return f"{text[:room]}\n[… {len(text) - room} characters left out …]", 0
