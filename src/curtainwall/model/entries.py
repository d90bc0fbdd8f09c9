"""The log's own nouns: entries, batches, inbox rows and heads, and events and commands as bytes with their name and version beside them."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, get_args

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from curtainwall.model.commands import AnyCommand
from curtainwall.model.errors import Broken, explain_invalid
from curtainwall.model.events import AnyEvent
from curtainwall.model.events.event import Event
from curtainwall.model.events.work import ExtensionNoted
from curtainwall.model.ids import Millis, StreamId

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


class Entry(NamedTuple):
    """One stored event: its place, its bytes, and the hash that links it to the previous entry. A tuple, because many are read at once."""

    stream: StreamId
    seq: int
    kind: str
    version: int
    payload: bytes
    hash: bytes


CHAIN_START = bytes(32)
"""The hash before the first entry of a stream."""


def entry_hash(before: bytes, stream: bytes, seq: int, kind: str, version: int, payload: bytes) -> bytes:
    """Return the hash of an entry, given that of the one before it."""
    name = kind.encode()
    lead = b"%b%d:%b%d:%d:%b%d:%d:" % (before, len(stream), stream, seq, len(name), name, version, len(payload))
    return hashlib.sha256(lead + payload).digest()


class StreamEnd(NamedTuple):
    """The last entry of a stream."""

    seq: int
    hash: bytes


class FoldSnapshot(NamedTuple):
    """The fold of a stream up to one entry, as bytes, and the version of the fold that made it."""

    stream: StreamId
    end: StreamEnd
    fold: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Recorded:
    """One event as readers of the feed receive it."""

    stream: StreamId
    seq: int
    event: AnyEvent


@dataclass(frozen=True)
class Write:
    """Events to append to a stream if it still ends at `expected`; without events, only that check."""

    stream: StreamId
    expected: int
    events: tuple[AnyEvent, ...]

    @cached_property
    def encoded(self) -> tuple[tuple[str, int, bytes], ...]:
        """Return the events in their stored form, built once for both writing and counting bytes."""
        return tuple(map(encode_event, self.events))


@dataclass(frozen=True, slots=True)
class Post:
    """A command for a stream's inbox. The key identifies the command."""

    stream: StreamId
    key: str
    command: AnyCommand


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a command: the stream's last entry after it, or why it was refused."""

    seq: int | None = None
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An undecided command in an inbox."""

    row: int
    stream: StreamId
    key: str
    command: AnyCommand


@dataclass(frozen=True, slots=True)
class Consumed:
    """A command that this batch decides, named by its inbox row, or by its key if the owner took it directly."""

    stream: StreamId
    key: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything that is written in one commit."""

    writes: tuple[Write, ...]
    consumed: tuple[Consumed, ...] = ()
    posts: tuple[Post, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that decides for a stream. Only for messages; what counts is the lock."""

    pid: int
    since: Millis
