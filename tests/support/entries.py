"""Events as a log keeps them."""

from collections.abc import Iterable

from curtainwall.model import AnyEvent, Entry, StreamId, encode_event

STREAM = StreamId("session:s")


def entries_of(events: Iterable[AnyEvent]) -> list[Entry]:
    """Return the entries of a log with these events; nothing seals them."""
    return [Entry(STREAM, seq, *encode_event(event), b"") for seq, event in enumerate(events, 1)]
