"""What a house and the process that writes for it say to each other, and how it travels."""

import os
import pickle
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from curtainwall.model import Millis
from curtainwall.store.audit.trail import Decode
from curtainwall.store.disk.committer import Written
from curtainwall.store.disk.ledger import PreparedBatch
from curtainwall.store.home import StorePaths

CHUNK: Final = 1 << 18
"""How much is read at once."""

BEAT: Final = 0.5
"""How many seconds lie between two reports at the most: one about nothing tells that the process lives."""

_LENGTH: Final = 4


def _which() -> str:
    try:
        found = os.stat(__file__)
    except OSError:
        return ""
    return f"{found.st_size}.{found.st_mtime_ns}:{__file__}"


CODE: Final = _which()
"""Which code this is: what was installed meanwhile may say the same in other words, or know another format of the database."""


class WriterTerms(NamedTuple):
    """The first frame: which home it is, and how its events are read."""

    home: StorePaths
    key: bytes
    busy_millis: int
    decode: Decode


class WriteOrder(NamedTuple):
    """What is wanted: batches, and perhaps a look at what others wrote."""

    now: Millis
    batches: Sequence[PreparedBatch]
    look: bool


class WriteReport(NamedTuple):
    """What became of all batches of some orders, in their order; and whether others wrote. The first one tells that it is ready."""

    written: Sequence[Written]
    was_changed: bool


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
