"""What was said in a room since we last listened, oldest first, also where that is more than one answer of the homeserver holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from curtainwall.channels.matrix.events import Raw, rows, table, text_of
from curtainwall.channels.matrix.homeserver import Homeserver

MOST: Final = 5_000
"""How many events are fetched of what was missed; of more, the newest count."""

HEARD: Final = ("m.room.message", "m.room.encrypted", "m.reaction", "m.room.redaction", "m.room.member", "m.room.encryption", "m.room.name")
_PAGE: Final = 100
_LONGEST_TOKEN: Final = 4_096

TIMELINE: Final[dict[str, object]] = {"limit": _PAGE, "types": list(HEARD), "lazy_load_members": True}


@dataclass(frozen=True, slots=True)
class Missed:
    """What was said, and whether there was more than could be fetched."""

    events: Sequence[Raw]
    cut: bool = False


async def said_since(homeserver: Homeserver, room: str, info: Raw, since: str | None, own: str) -> Missed:
    """Return the events of a room that came since a token; in a room that we have just joined, those since then."""
    timeline = table(info.get("timeline"))
    events = list(rows(timeline.get("events")))
    start = text_of(timeline.get("prev_batch"), _LONGEST_TOKEN)
    cut = False
    if since is not None and timeline.get("limited") is True and start is not None:
        older, cut = await _older(homeserver, room, start, since, own)
        events = [*older, *events]
    return Missed(_since_joining(events, own, is_first=since is None), cut)


async def _older(homeserver: Homeserver, room: str, start: str, since: str, own: str) -> tuple[list[Raw], bool]:
    found: list[Raw] = []
    while len(found) < MOST:
        told = await homeserver.before(room, start, since, TIMELINE)
        page = rows(told.get("chunk"))
        found += page
        end = text_of(told.get("end"), _LONGEST_TOKEN)
        if end is None or end == start or not page or any(_is_our_joining(raw, own) for raw in page):
            return list(reversed(found)), False
        start = end
    return list(reversed(found)), True


def _since_joining(events: Sequence[Raw], own: str, *, is_first: bool) -> Sequence[Raw]:
    """Return what came after we joined; at the very first look, what was there before is history."""
    places = [place for place, raw in enumerate(events) if _is_our_joining(raw, own)]
    if places:
        return events[places[-1] + 1 :]
    return () if is_first else events


def _is_our_joining(raw: Raw, own: str) -> bool:
    """Tell whether this is where we came into the room; a change of our name looks alike and is none."""
    if raw.get("type") != "m.room.member" or raw.get("state_key") != own:
        return False
    before = table(table(raw.get("unsigned")).get("prev_content")).get("membership")
    return table(raw.get("content")).get("membership") == "join" and before != "join"
