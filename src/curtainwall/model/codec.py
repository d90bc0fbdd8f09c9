"""Events and commands to bytes and back; the type's name and version travel beside the payload."""

from typing import get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from curtainwall.model.commands import AnyCommand
from curtainwall.model.errors import Broken
from curtainwall.model.events import AnyEvent
from curtainwall.model.events.event import Event
from curtainwall.model.events.work import ExtensionNoted
from curtainwall.model.misfits import misfit

_EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(AnyEvent)}
_COMMANDS: dict[str, TypeAdapter[AnyCommand]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(AnyCommand)}
_READ = {name: kind.__pydantic_validator__.validate_json for name, kind in _EVENTS.items()}

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
    read = _READ.get(kind)
    if read is None:
        raise Broken(f"unknown event type `{kind}`: this log was written by a newer version")
    try:
        return read(payload)
    except ValidationError as error:
        raise Broken(f"damaged `{kind}`: {_first(error)}") from None


def version_of(kind: str) -> int | None:
    """Return the version in which this program writes an event type, or None for one it does not know."""
    found = _EVENTS.get(kind)
    return found.VERSION if found else None


def encode_command(command: AnyCommand) -> tuple[str, bytes]:
    """Return the type and payload of a command; raise `Broken` for text that no encoding can hold."""
    return type(command).__name__, _bytes(command)


def decode_command(kind: str, payload: bytes) -> AnyCommand:
    """Return the command that a payload holds."""
    adapter = _COMMANDS.get(kind)
    if adapter is None:
        raise Broken(f"unknown command `{kind}`")
    try:
        return adapter.validate_json(payload)
    except ValidationError as error:
        raise Broken(f"damaged command `{kind}`: {_first(error)}") from None


def _bytes(value: AnyEvent | AnyCommand) -> bytes:
    try:
        # Everything is written out: a default that changes in a later version must not change what an old log says.
        return value.__pydantic_serializer__.to_json(value)
    except PydanticSerializationError:
        raise Broken(f"this `{type(value).__name__}` cannot be stored: it holds half a character, which no encoding can hold") from None


def _first(error: ValidationError) -> str:
    place, words = misfit(error)
    return f"`{'.'.join(map(str, place))}` {words}" if place else f"it {words}"
