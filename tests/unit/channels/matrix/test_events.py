"""What a homeserver sends, read with suspicion."""

import pytest

from curtainwall.channels.matrix.events import (
    LONGEST_TEXT,
    Attachment,
    Edit,
    EncryptedEvent,
    EventHead,
    Reaction,
    Redaction,
    TextMessage,
    read_event,
)
from tests.support.covers import covers
from tests.support.hostile_homeserver import garbage

ROOM = "!room:example.org"


def event(content: dict[str, object], **more: object) -> dict[str, object]:
    return {"event_id": "$e1", "sender": "@ann:example.org", "type": "m.room.message", "content": content, **more}


def test_a_text_is_what_somebody_said() -> None:
    found = read_event(event({"msgtype": "m.text", "body": "hello"}), ROOM)
    assert isinstance(found, TextMessage)
    assert (found.text, found.head.sender, found.head.room, found.sealed) == ("hello", "@ann:example.org", ROOM, False)


def test_the_quotation_before_a_reply_is_not_what_somebody_said() -> None:
    content = {
        "msgtype": "m.text",
        "body": "> <@bob:example.org> /approve k3x9ma\n> more\n\nno",
        "m.relates_to": {"m.in_reply_to": {"event_id": "$0"}},
    }
    found = read_event(event(content), ROOM)
    assert isinstance(found, TextMessage)
    assert found.text == "no"


@pytest.mark.parametrize(
    "raw",
    [
        event({"msgtype": "m.text", "body": "* new", "m.new_content": {"body": "new"}}),
        event({"msgtype": "m.notice", "body": "* new", "m.relates_to": {"rel_type": "m.replace", "event_id": "$0"}}),
        event({"msgtype": "m.notice", "body": "I am a program"}),
        event({"msgtype": "m.text", "body": ""}),
        event({"msgtype": "m.text", "body": ["a"]}),
        event({"msgtype": "m.text", "body": "x"}, state_key=""),
        event({"msgtype": "m.text", "body": "x"}, unsigned={"redacted_because": {}}),
        event({"msgtype": "m.text", "body": "x"}, sender="ann"),
        event({"msgtype": "m.text", "body": "x"}, event_id="e1"),
        event({"msgtype": "m.text", "body": "x"}, type="m.room.name"),
    ],
)  # fmt: skip
def test_notices_state_and_half_events_are_nothing(raw: dict[str, object]) -> None:
    assert read_event(raw, ROOM) is None


def test_an_edit_is_something_that_cannot_be_taken_whatever_it_says() -> None:
    for new in ({"m.new_content": {"msgtype": "m.text", "body": "/approve k3x9ma"}}, {}):
        content = {"msgtype": "m.text", "body": "* /approve k3x9ma", "m.relates_to": {"rel_type": "m.replace", "event_id": "$0"}, **new}
        found = read_event(event(content), ROOM)
        assert isinstance(found, Edit)
        assert found.about == "$0"


@pytest.mark.parametrize("relation", [{}, {"rel_type": "m.thread", "event_id": "$root"}])
def test_a_reply_says_what_it_is_about(relation: dict[str, object]) -> None:
    content = {"msgtype": "m.text", "body": "no", "m.relates_to": {**relation, "m.in_reply_to": {"event_id": "$0"}}}
    found = read_event(event(content), ROOM)
    assert isinstance(found, TextMessage)
    assert (found.about, found.head.thread) == ("$0", relation.get("event_id", ""))


def test_what_is_too_long_or_no_text_is_something_that_cannot_be_taken() -> None:
    assert isinstance(read_event(event({"msgtype": "m.text", "body": "x" * (LONGEST_TEXT + 1)}), ROOM), Attachment)
    assert isinstance(read_event(event({"msgtype": "m.image", "body": "cat.png"}), ROOM), Attachment)


def test_a_reaction_is_bound_to_its_message() -> None:
    relation = {"rel_type": "m.annotation", "event_id": "$card", "key": "👍"}
    found = read_event(event({"m.relates_to": relation}, type="m.reaction"), ROOM)
    assert isinstance(found, Reaction)
    assert (found.about, found.sign) == ("$card", "👍")
    assert read_event(event({"m.relates_to": {**relation, "rel_type": "m.thread"}}, type="m.reaction"), ROOM) is None


def test_something_encrypted_inside_something_encrypted_is_nothing() -> None:
    raw = event({"algorithm": "m.megolm.v1.aes-sha2"}, type="m.room.encrypted")
    assert isinstance(read_event(raw, ROOM), EncryptedEvent)
    assert read_event(raw, ROOM, sealed=True) is None


@covers("matrix.garbage")
def test_whatever_an_enemy_sends_is_read_or_ignored() -> None:
    for raw in garbage(3, 10_000, ["k3x9ma"]):
        if isinstance(raw, dict):
            found = read_event(raw, ROOM)
            assert found is None or (found.head.event.startswith("$") and found.head.sender.startswith("@"))


@pytest.mark.parametrize("where", [{"redacts": "$old", "content": {}}, {"content": {"redacts": "$old", "reason": "a slip"}}])
def test_a_removal_says_what_it_removes_in_either_place_and_one_that_does_not_is_nothing(where: dict[str, object]) -> None:
    raw = {"type": "m.room.redaction", "event_id": "$new", "sender": "@ann:example.org"}
    assert read_event({**raw, **where}, ROOM) == Redaction(EventHead("$new", "@ann:example.org", ROOM), "$old")
    assert read_event({**raw, "content": {"redacts": 7}}, ROOM) is None
