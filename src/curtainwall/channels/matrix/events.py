"""What a homeserver sends, read with suspicion: each event is something we know, or nothing at all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

LONGEST_TEXT: Final = 40_000
_LONGEST_ID: Final = 255
_LONGEST_KEY: Final = 100

Raw = Mapping[str, object]
"""An event as it came, of which nothing is known yet."""


@dataclass(frozen=True, slots=True)
class EventHead:
    """What every event has: its id, who sent it by the homeserver's word, in which room, and in which of its threads, if any."""

    event: str
    sender: str
    room: str
    thread: str = ""


@dataclass(frozen=True, slots=True)
class TextMessage:
    """Somebody wrote a text; `sealed` says that it came encrypted, from a device of theirs, and `about` what it replies to."""

    head: EventHead
    text: str
    sealed: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Reaction:
    """Somebody put a sign under a message. The homeserver can make these up."""

    head: EventHead
    about: str
    sign: str


@dataclass(frozen=True, slots=True)
class EncryptedEvent:
    """Something encrypted that has still to be opened."""

    head: EventHead
    raw: Raw


@dataclass(frozen=True, slots=True)
class Attachment:
    """Somebody sent something that we cannot take: a picture, a file, a voice."""

    head: EventHead
    kind: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Somebody changed what they had written. What it was first is what counts."""

    head: EventHead
    about: str


@dataclass(frozen=True, slots=True)
class Redaction:
    """Somebody removed a message: its author, or whoever may do that in the room. The homeserver can make these up."""

    head: EventHead
    about: str


Event = TextMessage | Reaction | EncryptedEvent | Attachment | Edit | Redaction


def table(value: object) -> Raw:
    """Return a JSON object, or an empty one for everything else."""
    return cast("Raw", value) if isinstance(value, dict) else {}


def rows(value: object) -> Sequence[Raw]:
    """Return the objects of a JSON array, or none for everything else."""
    return [cast("Raw", each) for each in cast("list[object]", value) if isinstance(each, dict)] if isinstance(value, list) else []


def text_of(value: object, longest: int = _LONGEST_ID) -> str | None:
    """Return a text that is not empty and not longer than it may be."""
    return value if isinstance(value, str) and 0 < len(value) <= longest and _is_whole(value) else None


def is_one_word(text: str) -> bool:
    """Tell whether a text is visible through and through and has no gap, as the ids of people, rooms and events are."""
    return text.isprintable() and " " not in text


def _is_whole(text: str) -> bool:
    """Tell whether a text can be written down: half a character cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def head_of(raw: Raw, room: str) -> EventHead | None:
    """Return what every event has, or None where this one has not."""
    event, sender = text_of(raw.get("event_id")), text_of(raw.get("sender"))
    if event is None or sender is None or not event.startswith("$") or not sender.startswith("@") or ":" not in sender:
        return None
    # What we say of a sender is said in our own name: an id in several lines could pass for a card of ours.
    return EventHead(event, sender, room) if is_one_word(event) and is_one_word(sender) else None


def read_event(raw: Raw, room: str, *, sealed: bool = False) -> Event | None:
    """Return what an event of a room's timeline is; None for what concerns nobody here, and for what is no event."""
    head = head_of(raw, room)
    if head is None or raw.get("state_key") is not None or "redacted_because" in table(raw.get("unsigned")):
        return None
    content = table(raw.get("content"))
    match raw.get("type"):
        case "m.room.message":
            return _message(head, content, sealed=sealed)
        case "m.reaction":
            return _reaction(head, content)
        case "m.room.redaction":
            # Where it says what it removes depends on the version of the room.
            about = text_of(raw.get("redacts")) or text_of(content.get("redacts"))
            return None if about is None else Redaction(head, about)
        case "m.room.encrypted" if not sealed and content.get("algorithm") == "m.megolm.v1.aes-sha2":
            return EncryptedEvent(head, raw)
        case _:
            return None


def room_name(info: Raw) -> str | None:
    """Return what a room is called, as far as an answer of the homeserver tells it: nothing where its name was taken away."""
    events = [raw for part in ("state", "timeline") for raw in rows(table(info.get(part)).get("events"))]
    named = [raw for raw in events if raw.get("type") == "m.room.name" and raw.get("state_key") == ""]
    return (text_of(table(named[-1].get("content")).get("name")) or "") if named else None


def _message(head: EventHead, content: Raw, *, sealed: bool) -> TextMessage | Attachment | Edit | None:
    relation, kind = table(content.get("m.relates_to")), content.get("msgtype")
    # What somebody sent is what counts; a change of it afterwards is for readers.
    if relation.get("rel_type") == "m.replace" or "m.new_content" in content:
        changed = text_of(relation.get("event_id"))
        return None if changed is None or kind == "m.notice" else Edit(head, changed)
    thread = (text_of(relation.get("event_id")) if relation.get("rel_type") == "m.thread" else None) or ""
    about = text_of(table(relation.get("m.in_reply_to")).get("event_id")) or thread
    head = replace(head, thread=thread)
    if kind in ("m.text", "m.emote"):
        text = text_of(content.get("body"), LONGEST_TEXT)
        if text is None:
            return Attachment(head, "message that is too long") if isinstance(content.get("body"), str) and content.get("body") else None
        return TextMessage(head, _without_quote(text, relation), sealed, about)
    # Notices are how programs talk; answering them is how two programs never stop.
    kinds = {"m.image": "picture", "m.file": "file", "m.audio": "recording", "m.video": "video", "m.location": "place"}
    return Attachment(head, kinds[kind]) if isinstance(kind, str) and kind in kinds else None


def _without_quote(text: str, relation: Raw) -> str:
    """Return the text without the lines that older clients put before a reply, quoting what it replies to."""
    if not table(relation.get("m.in_reply_to")) or not text.startswith("> "):
        return text
    lines = text.split("\n")
    while lines and lines[0].startswith(">"):
        lines.pop(0)
    return "\n".join(lines).lstrip("\n") or text


def _reaction(head: EventHead, content: Raw) -> Reaction | None:
    relation = table(content.get("m.relates_to"))
    about, sign = text_of(relation.get("event_id")), text_of(relation.get("key"), _LONGEST_KEY)
    if relation.get("rel_type") != "m.annotation" or about is None or sign is None:
        return None
    return Reaction(head, about, sign)


def invitations(found: Raw, own: str) -> Iterator[tuple[str, str]]:
    """Yield each room that we are invited to, and by whom."""
    for room, info in table(found.get("invite")).items():
        for raw in rows(table(table(info).get("invite_state")).get("events")):
            inviter = text_of(raw.get("sender"))
            is_ours = raw.get("type") == "m.room.member" and raw.get("state_key") == own
            if is_ours and table(raw.get("content")).get("membership") == "invite" and inviter is not None:
                yield room, inviter
                break
