"""Events and commands as bytes, with their name and version beside them."""

from collections.abc import Callable
from typing import get_args

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from curtainwall.model.commands import AnyCommand
from curtainwall.model.errors import Broken, explain_invalid
from curtainwall.model.events import AnyEvent
from curtainwall.model.events.event import Event
from curtainwall.model.events.work import ExtensionNoted

_EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(AnyEvent)}
_COMMANDS: dict[str, type[AnyCommand]] = {kind.__name__: kind for kind in get_args(AnyCommand)}
_readers: dict[str, Callable[[bytes], AnyEvent]] = {}
"""The validator of each event type that was read before: a long log has many events of one type."""

IGNORABLE = ExtensionNoted.__name__


def event_types() -> frozenset[str]:
    """Return the names of all events that this version knows."""
    return frozenset(_EVENTS)


def encode_event(event: AnyEvent) -> tuple[str, int, bytes]:
    """Return the type, version and payload of an event; raise `Broken` for text that no encoding can hold."""
    kind = type(event)
    return kind.__name__, kind.VERSION, _bytes(event)


def decode_event(kind: str, payload: bytes) -> AnyEvent:
    """Return the event that a current payload holds; `session/upcast.py` lifts older ones first."""
    read = _readers.get(kind) or _reader(kind)
    try:
        return read(payload)
    except ValidationError as error:
        raise Broken(f"damaged `{kind}`: {_first(error)}") from None


def _reader(kind: str) -> Callable[[bytes], AnyEvent]:
    event_type = _EVENTS.get(kind)
    if event_type is None:
        raise Broken(f"unknown event type `{kind}`: this log was written by a newer version")
    # Building the class replaces its validator, so that has to happen before we keep a method of it.
    event_type.model_rebuild()
    read: Callable[[bytes], AnyEvent] = event_type.__pydantic_validator__.validate_json
    _readers[kind] = read
    return read


def version_of(kind: str) -> int | None:
    """Return the version in which this program writes an event type, or None for an unknown type."""
    event_type = _EVENTS.get(kind)
    return event_type.VERSION if event_type else None


def encode_command(command: AnyCommand) -> tuple[str, bytes]:
    """Return the type and payload of a command; raise `Broken` for text that no encoding can hold."""
    return type(command).__name__, _bytes(command)


def decode_command(kind: str, payload: bytes) -> AnyCommand:
    """Return the command that a payload holds."""
    command_type = _COMMANDS.get(kind)
    if command_type is None:
        raise Broken(f"unknown command `{kind}`")
    try:
        return command_type.model_validate_json(payload)
    except ValidationError as error:
        raise Broken(f"damaged command `{kind}`: {_first(error)}") from None


def _bytes(value: AnyEvent | AnyCommand) -> bytes:
    try:
        # Write defaults too: if a later version changes a default, old logs must keep their meaning.
        return value.__pydantic_serializer__.to_json(value)
    except PydanticSerializationError:
        raise Broken(f"this `{type(value).__name__}` cannot be stored: it holds half a character, which no encoding can hold") from None


def _first(error: ValidationError) -> str:
    place, words = explain_invalid(error)
    return f"`{'.'.join(map(str, place))}` {words}" if place else f"it {words}"
