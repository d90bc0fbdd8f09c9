"""The log's own nouns: entries, batches, inbox rows and heads."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from curtainwall.model.ids import Millis, StreamId
from curtainwall.model.records import record

if TYPE_CHECKING:
    # Start-up time: whoever reads a list needs no events and no commands.
    from curtainwall.model.commands import AnyCommand
    from curtainwall.model.events import AnyEvent


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


@record
class Recorded:
    """One event as readers of the feed receive it."""

    stream: StreamId
    seq: int
    event: "AnyEvent"


@dataclass(frozen=True)
class Write:
    """Events to append to a stream if it still ends at `expected`; without events, only that check."""

    stream: StreamId
    expected: int
    events: "tuple[AnyEvent, ...]"

    @cached_property
    def encoded(self) -> tuple[tuple[str, int, bytes], ...]:
        """Return the events in their stored form, built once for both writing and counting bytes."""
        # Start-up time: as above.
        from curtainwall.model.codec import encode_event

        return tuple(map(encode_event, self.events))


@record
class Post:
    """A command for a stream's inbox. The key identifies the command."""

    stream: StreamId
    key: str
    command: "AnyCommand"


@record
class Outcome:
    """The outcome of a command: the stream's last entry after it, or why it was refused."""

    seq: int | None = None
    code: str = ""
    message: str = ""


@record
class Waiting:
    """An undecided command in an inbox."""

    row: int
    stream: StreamId
    key: str
    command: "AnyCommand"


@record
class Consumed:
    """A command that this batch decides, named by its inbox row, or by its key if the owner took it directly."""

    stream: StreamId
    key: str
    outcome: Outcome


@record
class Batch:
    """Everything that is written in one commit."""

    writes: tuple[Write, ...]
    consumed: tuple[Consumed, ...] = ()
    posts: tuple[Post, ...] = ()


@record
class Owner:
    """The process that decides for a stream. Only for messages; what counts is the lock."""

    pid: int
    since: Millis
