"""Prepares results for the log and the model: complete in the log, shortened for the model with a note of what was cut."""

import json

from pydantic import JsonValue

from curtainwall.model import INLINE_LIMIT, Blobs, Payload

SHOWN_LIMIT = 30_000
# In JSON no character takes more than six bytes, so a text of this length need not be encoded to measure it.
_SURELY_SMALL = INLINE_LIMIT // 6 - 1


async def keep(value: JsonValue, blobs: Blobs) -> Payload:
    """Return a value as a payload: inline if it is small, a blob otherwise."""
    if isinstance(value, str) and len(value) <= _SURELY_SMALL:
        return Payload(inline=value)
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    if len(content) <= INLINE_LIMIT:
        return Payload(inline=value)
    return Payload(blob=await blobs.put(content))


def load(payload: Payload, blobs: Blobs) -> JsonValue:
    """Return the value of a payload, inline or from a blob."""
    if payload.blob is None:
        return payload.inline
    return json.loads(blobs.get(payload.blob.digest))


def shorten(value: JsonValue, limit: int = SHOWN_LIMIT) -> JsonValue:
    """Return the value, or its head and tail as text with the number of characters cut in between."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= limit:
        return value
    half = limit // 2
    return f"{text[:half]}\n…[{len(text) - 2 * half} characters cut; ask for a part to see more]…\n{text[-half:]}"
