"""Lifts old events to the current schema, one small step for each version; schemas live for ever."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from curtainwall.model import AnyEvent, Broken, Entry, decode_event, version_of

Lift = Callable[[dict[str, Any]], dict[str, Any]]

# (type, version) → the step to the next version. No schema has changed since the first version yet.
LIFTS: Mapping[tuple[str, int], Lift] = {}


def lift(entry: Entry, lifts: Mapping[tuple[str, int], Lift] = LIFTS) -> AnyEvent:
    """Return the event in an entry, no matter which version wrote it; refuse an entry of a newer program."""
    current = version_of(entry.kind)
    if current is None or entry.version > current:
        raise Broken(
            f"entry {entry.seq} of `{entry.stream}` is a `{entry.kind}` of version {entry.version}, "
            "which this program does not know: upgrade it"
        )
    if entry.version == current:
        return decode_event(entry.kind, entry.payload)
    try:
        payload: dict[str, Any] = json.loads(entry.payload)
        for version in range(entry.version, current):
            step = lifts.get((entry.kind, version))
            if step is None:
                raise Broken(f"there is no way from version {version} of `{entry.kind}` to the next")
            payload = step(payload)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Broken(f"entry {entry.seq} of `{entry.stream}` is a damaged `{entry.kind}`: {error}") from None
    return decode_event(entry.kind, json.dumps(payload).encode())
