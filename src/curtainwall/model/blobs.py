"""Payloads: an event holds small ones itself, and refers to big ones by their digest."""

from pydantic import JsonValue

from curtainwall.model.frozen import Frozen

INLINE_LIMIT = 32 * 1024
"""Payloads above this many bytes become blobs."""


class BlobRef(Frozen):
    """A content-addressed payload outside the event."""

    digest: str
    size: int


class Payload(Frozen):
    """A value that is inline or in a blob, never both."""

    inline: JsonValue = None
    blob: BlobRef | None = None
