"""What a house and the process that writes for it say to each other, and how it travels."""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from curtainwall.model import Millis, StreamId
from curtainwall.store.desk import Written
from curtainwall.store.prepared import PreparedBatch

CHUNK: Final = 1 << 18
"""How much is read at once."""

_LENGTH: Final = 4


class Terms(NamedTuple):
    """The first frame: whose database it is."""

    path: Path
    key: bytes
    busy_millis: int


class Order(NamedTuple):
    """What is wanted: batches, how far audit files are complete, and perhaps a look at what others wrote."""

    now: Millis
    batches: Sequence[PreparedBatch]
    marks: Mapping[StreamId, int]
    look: bool


class Report(NamedTuple):
    """What became of all batches of some orders, in their order; whether others wrote; and whose audit files are behind."""

    written: Sequence[Written]
    was_changed: bool
    behind: Sequence[StreamId]


class Frames:
    """Values on their way through a socket; both ends are processes of ours, and nobody else has it."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @staticmethod
    def of(value: object) -> bytes:
        """Return a value as a frame."""
        content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        return len(content).to_bytes(_LENGTH, "little") + content

    def take(self, data: bytes) -> Iterator[Any]:
        """Return the values that are whole with these bytes."""
        rest = self._rest
        rest += data
        while len(rest) >= _LENGTH and len(rest) >= (end := _LENGTH + int.from_bytes(rest[:_LENGTH], "little")):
            content = bytes(rest[_LENGTH:end])
            del rest[:end]
            yield pickle.loads(content)  # noqa: S301 - from our own process, over a socket that has no name
