"""The log's own nouns: entries, batches, inbox rows, heads."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from curtainwall.model.codec import encode_event
from curtainwall.model.commands import AnyCommand
from curtainwall.model.events import AnyEvent
from curtainwall.model.ids import Millis, StreamId


class Entry(NamedTuple):
    """One stored event: its place, its bytes, and the hash that binds it to the entry before it; a tuple, because many are read at once."""

    stream: StreamId
    seq: int
    kind: str
    version: int
    payload: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class Recorded:
    """One event as others read it."""

    stream: StreamId
    seq: int
    event: AnyEvent


@dataclass(frozen=True)
class Write:
    """Events for one stream, if it still ends at `expected`; without events it only checks that."""

    stream: StreamId
    expected: int
    events: tuple[AnyEvent, ...]

    @cached_property
    def encoded(self) -> tuple[tuple[str, int, bytes], ...]:
        """Return the events as they are stored: made once, for whoever writes them and whoever counts their bytes."""
        return tuple(map(encode_event, self.events))


@dataclass(frozen=True, slots=True)
class Post:
    """A command for a stream's inbox. The same key twice is the same command."""

    stream: StreamId
    key: str
    command: AnyCommand


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a command: the stream's last entry after it, or why it was refused."""

    seq: int | None = None
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A command in an inbox that nobody has decided yet."""

    row: int
    stream: StreamId
    key: str
    command: AnyCommand


@dataclass(frozen=True, slots=True)
class Consumed:
    """A command that this batch decides: by its inbox row, or by its key where the owner took it directly."""

    stream: StreamId
    key: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Batch:
    """What is written together or not at all."""

    writes: tuple[Write, ...]
    consumed: tuple[Consumed, ...] = ()
    posts: tuple[Post, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """Which process decides for a stream; it only serves messages, the lock is what counts."""

    pid: int
    since: Millis
