"""The messages between a house and its writer process, and how they are framed."""

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
"""The maximum number of seconds between two reports. An empty report shows that the process is alive."""

_LENGTH: Final = 4


def _code_version() -> str:
    try:
        status = os.stat(__file__)
    except OSError:
        return ""
    return f"{status.st_size}.{status.st_mtime_ns}:{__file__}"


CODE: Final = _code_version()
"""Identifies this code. Code installed since may use other messages or another database format."""


class WriterTerms(NamedTuple):
    """The first frame: the home, and how to decode its events."""

    home: StorePaths
    key: bytes
    busy_millis: int
    decode: Decode


class WriteOrder(NamedTuple):
    """A request to write batches and, if `look` is set, to check what others wrote."""

    now: Millis
    batches: Sequence[PreparedBatch]
    look: bool


class WriteReport(NamedTuple):
    """The results of the batches of some orders, in order, and whether others wrote. The first report signals readiness."""

    written: Sequence[Written]
    was_changed: bool


class Frames:
    """Frames values sent through a socket between two of our own processes, which nobody else can reach."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @staticmethod
    def of(value: object) -> bytes:
        """Return a value as a frame."""
        content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        return len(content).to_bytes(_LENGTH, "little") + content

    def take(self, data: bytes) -> Iterator[Any]:
        """Yield the values that these bytes complete."""
        rest = self._rest
        rest += data
        while len(rest) >= _LENGTH and len(rest) >= (end := _LENGTH + int.from_bytes(rest[:_LENGTH], "little")):
            content = bytes(rest[_LENGTH:end])
            del rest[:end]
            yield pickle.loads(content)  # noqa: S301 - from our own process, over a socket that has no name
