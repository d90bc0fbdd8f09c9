"""Parses what a homeserver sends, without trusting it: each event is one we know, or None."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from curtainwall.model import record

LONGEST_TEXT: Final = 40_000
_LONGEST_ID: Final = 255
_LONGEST_KEY: Final = 100

Raw = Mapping[str, object]
"""An event as received, unchecked."""


@record
class EventHead:
    """The common fields: the id, the sender as the homeserver names it, the room, and the thread if any."""

    event: str
    sender: str
    room: str
    thread: str = ""


@record
class TextMessage:
    """A text message; `sealed` means it came encrypted from a device of its sender, and `about` is the message it replies to."""

    head: EventHead
    text: str
    sealed: bool = False
    about: str = ""


@record
class Reaction:
    """A reaction to a message. The homeserver can forge these."""

    head: EventHead
    about: str
    sign: str


@record
class EncryptedEvent:
    """An encrypted event that is still to be decrypted."""

    head: EventHead
    raw: Raw


@record
class Attachment:
    """Something that we cannot take: a picture, a file, a recording."""

    head: EventHead
    kind: str


@record
class Edit:
    """A change to an earlier message. The original is what counts."""

    head: EventHead
    about: str


@record
class Redaction:
    """The removal of a message, by its author or a moderator. The homeserver can forge these."""

    head: EventHead
    about: str


Event = TextMessage | Reaction | EncryptedEvent | Attachment | Edit | Redaction


def table(value: object) -> Raw:
    """Return the value if it is a JSON object, otherwise an empty one."""
    return cast("Raw", value) if isinstance(value, dict) else {}


def rows(value: object) -> Sequence[Raw]:
    """Return the objects in a JSON array; none for any other value."""
    return [cast("Raw", item) for item in cast("list[object]", value) if isinstance(item, dict)] if isinstance(value, list) else []


def text_of(value: object, longest: int = _LONGEST_ID) -> str | None:
    """Return the value if it is a non-empty text within the length limit, otherwise None."""
    return value if isinstance(value, str) and 0 < len(value) <= longest and _is_whole(value) else None


def is_one_word(text: str) -> bool:
    """Tell whether a text is printable and has no spaces, like the ids of people, rooms and events."""
    return text.isprintable() and " " not in text


def _is_whole(text: str) -> bool:
    """Tell whether a text can be encoded; a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def head_of(raw: Raw, room: str) -> EventHead | None:
    """Return the common fields of an event, or None if any is missing or malformed."""
    event, sender = text_of(raw.get("event_id")), text_of(raw.get("sender"))
    if event is None or sender is None or not event.startswith("$") or not sender.startswith("@") or ":" not in sender:
        return None
    # We quote the sender in our own messages: an id of several lines could pass for a card of ours.
    return EventHead(event, sender, room) if is_one_word(event) and is_one_word(sender) else None


def read_event(raw: Raw, room: str, *, sealed: bool = False) -> Event | None:
    """Return the parsed event of a room's timeline; None if it is irrelevant or malformed."""
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
            # Where a redaction names its target depends on the room version.
            about = text_of(raw.get("redacts")) or text_of(content.get("redacts"))
            return None if about is None else Redaction(head, about)
        case "m.room.encrypted" if not sealed and content.get("algorithm") == "m.megolm.v1.aes-sha2":
            return EncryptedEvent(head, raw)
        case _:
            return None


def room_name(info: Raw) -> str | None:
    """Return a room's name if this response contains it; "" if the name was removed, None if it does not say."""
    events = [raw for part in ("state", "timeline") for raw in rows(table(info.get(part)).get("events"))]
    names = [raw for raw in events if raw.get("type") == "m.room.name" and raw.get("state_key") == ""]
    return (text_of(table(names[-1].get("content")).get("name")) or "") if names else None


def _message(head: EventHead, content: Raw, *, sealed: bool) -> TextMessage | Attachment | Edit | None:
    relation, kind = table(content.get("m.relates_to")), content.get("msgtype")
    # What was sent first is what counts; a later edit is only for readers.
    if relation.get("rel_type") == "m.replace" or "m.new_content" in content:
        edited = text_of(relation.get("event_id"))
        return None if edited is None or kind == "m.notice" else Edit(head, edited)
    thread = (text_of(relation.get("event_id")) if relation.get("rel_type") == "m.thread" else None) or ""
    about = text_of(table(relation.get("m.in_reply_to")).get("event_id")) or thread
    head = replace(head, thread=thread)
    if kind in ("m.text", "m.emote"):
        text = text_of(content.get("body"), LONGEST_TEXT)
        if text is None:
            return Attachment(head, "message that is too long") if isinstance(content.get("body"), str) and content.get("body") else None
        return TextMessage(head, _without_quote(text, relation), sealed, about)
    # Programs send notices; two programs that answer each other's notices would never stop.
    kinds = {"m.image": "picture", "m.file": "file", "m.audio": "recording", "m.video": "video", "m.location": "place"}
    return Attachment(head, kinds[kind]) if isinstance(kind, str) and kind in kinds else None


def _without_quote(text: str, relation: Raw) -> str:
    """Return the text without the quoted lines that older clients put before a reply."""
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


def invitations(rooms: Raw, own: str) -> Iterator[tuple[str, str]]:
    """Yield each room that we are invited to, and the inviter."""
    for room, info in table(rooms.get("invite")).items():
        for raw in rows(table(table(info).get("invite_state")).get("events")):
            inviter = text_of(raw.get("sender"))
            is_ours = raw.get("type") == "m.room.member" and raw.get("state_key") == own
            if is_ours and table(raw.get("content")).get("membership") == "invite" and inviter is not None:
                yield room, inviter
                break
