"""Every event and command comes back from its bytes as it went in; what is damaged is said to be."""

import contextlib
import json

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from curtainwall.model import (
    IGNORABLE,
    AgentSpoke,
    AnyCommand,
    AnyEvent,
    Broken,
    CallRequested,
    CommandFacts,
    ExtensionNoted,
    Frozen,
    HostFacts,
    RecordProgress,
    RenameSession,
    Resource,
    Role,
    Scope,
    SessionRenamed,
    TextStreamed,
    ToolEffect,
    ToolFacts,
    TurnId,
    Who,
    decode_command,
    decode_event,
    encode_command,
    encode_event,
    event_types,
    version_of,
)
from tests.support.covers import covers
from tests.support.given import ANN, NOW, subject
from tests.support.strategies import COMMAND_TYPES, EVENT_TYPES, words

ROUND_TRIPS = settings(max_examples=25, deadline=None)


@covers("model.events-and-commands-round-trip")
@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_every_event_comes_back_as_it_went_in(kind: type[Frozen]) -> None:
    @ROUND_TRIPS
    @for_all(words(kind))
    def comes_back(event: AnyEvent) -> None:
        name, version, payload = encode_event(event)
        assert (name, version) == (kind.__name__, 1)
        assert type(decode_event(name, payload)) is kind
        assert decode_event(name, payload) == event
        assert encode_event(decode_event(name, payload))[2] == payload

    comes_back()


@covers("model.events-and-commands-round-trip")
@pytest.mark.parametrize("kind", COMMAND_TYPES, ids=lambda kind: kind.__name__)
def test_every_command_comes_back_as_it_went_in(kind: type[Frozen]) -> None:
    @ROUND_TRIPS
    @for_all(words(kind))
    def comes_back(command: AnyCommand) -> None:
        name, payload = encode_command(command)
        assert name == kind.__name__
        assert decode_command(name, payload) == command

    comes_back()


@covers("model.events-and-commands-round-trip")
@pytest.mark.parametrize(
    "facts",
    [
        HostFacts(host="example.org", port=443, secure=True, scope=Scope.PUBLIC),
        CommandFacts(program="ls", parsed=True),
        ToolFacts(server="git", effect=ToolEffect.SEND),
        None,
    ],
    ids=str,
)
def test_what_a_resource_means_comes_back(facts: HostFacts | CommandFacts | ToolFacts | None) -> None:
    resource = Resource(role=Role.FETCH_URL, value="x", facts=facts)
    event = CallRequested(at=NOW, call="c1", subject=subject("a.b", ToolEffect.SEND, resource))
    back = decode_event("CallRequested", encode_event(event)[2])
    assert isinstance(back, CallRequested)
    assert back.subject.resources[1].facts == facts


def test_events_with_the_same_keys_are_told_apart_in_a_command() -> None:
    turn = TurnId("t1")
    command = RecordProgress(by=ANN, events=(TextStreamed(at=NOW, turn=turn, text="a"), AgentSpoke(at=NOW, turn=turn, text="b")))
    back = decode_command(*encode_command(command))
    assert isinstance(back, RecordProgress)
    assert [type(event) for event in back.events] == [TextStreamed, AgentSpoke]


@pytest.mark.parametrize("events", [[3], [{}], [{"event": "Made.Up", "at": 1}], [{"event": "SessionReady", "at": 1}], [{"event": 3}], 7])
def test_progress_is_nothing_but_progress(events: JsonValue) -> None:
    with pytest.raises(Broken, match="damaged command `RecordProgress`: `events"):
        decode_command("RecordProgress", json.dumps({"by": {"name": "ann"}, "events": events}).encode())


def test_defaults_are_written_out_so_that_a_later_default_does_not_change_an_old_log() -> None:
    assert encode_event(SessionRenamed(at=1, name="a", by=ANN))[2] == b'{"at":1,"name":"a","by":{"name":"ann","channel":"local"}}'


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b'{"at":1}', b'{"at":1,"name":"a","by":{"name":"ann"},"more":1}', b"\xff"])
def test_a_damaged_payload_is_broken(payload: bytes) -> None:
    with pytest.raises(Broken, match="damaged `SessionRenamed`: "):
        decode_event("SessionRenamed", payload)
    with pytest.raises(Broken, match="damaged command `RenameSession`: "):
        decode_command("RenameSession", payload.replace(b'"at":1,', b""))


@for_all(st.binary(max_size=60), st.sampled_from(sorted(event_types())))
def test_bytes_of_any_kind_are_an_event_or_broken(payload: bytes, kind: str) -> None:
    with contextlib.suppress(Broken):
        assert type(decode_event(kind, payload)).__name__ == kind


def test_a_damaged_payload_says_where() -> None:
    with pytest.raises(Broken, match=r"damaged `SessionRenamed`: `by.name` is missing"):
        decode_event("SessionRenamed", b'{"at":1,"name":"a","by":{}}')


def test_an_unknown_type_is_broken() -> None:
    with pytest.raises(Broken, match="unknown event type `SessionTeleported`: this log was written by a newer version"):
        decode_event("SessionTeleported", b"{}")
    with pytest.raises(Broken, match="unknown command `TeleportSession`"):
        decode_command("TeleportSession", b"{}")
    assert version_of("SessionTeleported") is None


def test_every_event_type_is_known_by_name_and_version() -> None:
    assert event_types() == {kind.__name__ for kind in EVENT_TYPES}
    assert {version_of(kind.__name__) for kind in EVENT_TYPES} == {1}
    assert IGNORABLE in event_types()


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_character_cannot_be_stored_and_that_is_said(text: str) -> None:
    with pytest.raises(Broken, match="this `SessionRenamed` cannot be stored: it holds half a character"):
        encode_event(SessionRenamed(at=NOW, name=text, by=ANN))
    with pytest.raises(Broken, match="this `RenameSession` cannot be stored"):
        encode_command(RenameSession(name=text, by=ANN))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_is_refused_before_it_is_stored(value: float) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        ExtensionNoted(at=NOW, extension="x", data={"a": [value]})


def test_a_word_never_changes_and_refuses_keys_it_does_not_know() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        type(ANN).__setattr__(ANN, "name", "eve")
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Who.model_validate({"name": "ann", "operator": True})
