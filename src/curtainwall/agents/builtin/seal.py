"""Snapshots of programs on their way out and back in: bound to their place by a key that no agent has, and refused otherwise."""

import base64
import hashlib
import hmac
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from curtainwall.model import Broken, CallId, canonical_json

_BIGGEST = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Pending:
    """A call that a program made and has no result of."""

    call: CallId
    tool: str
    arguments: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A program that waits: the interpreter's own bytes, what was printed so far, and its open calls by the interpreter's numbers."""

    dump: bytes
    prints: str
    pending: Mapping[int, Pending]


class Seal:
    """Seals and opens snapshots. The interpreter believes whatever it loads, so it is only given what we sealed ourselves."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.blake2b(b"program snapshots", key=key[:64]).digest()

    def way_out(self, about: str) -> str:
        """Return what a program's one function outside is called: the same after every wait, and not to be guessed."""
        return f"_out_{hmac.new(self._key, b'way out' + about.encode(), hashlib.sha256).hexdigest()[:24]}"

    def close(self, snapshot: Snapshot, about: str) -> JsonValue:
        """Return the snapshot as the log keeps it, bound to what it is about."""
        told: dict[str, JsonValue] = {
            "dump": base64.b64encode(zlib.compress(snapshot.dump, 1)).decode(),
            "prints": snapshot.prints,
            "pending": {str(number): [each.call, each.tool, dict(each.arguments)] for number, each in snapshot.pending.items()},
        }
        return {**told, "mac": self._mac(told, about)}

    def open(self, sealed: JsonValue, about: str) -> Snapshot:
        """Return a snapshot that we sealed for the same place; raise `Broken` for any other."""
        match sealed:
            case {"dump": str(dump), "prints": str(prints), "pending": dict(pending), "mac": str(mac)}:
                told: dict[str, JsonValue] = {"dump": dump, "prints": prints, "pending": pending}
            case _:
                raise Broken("a saved program has an unknown form")
        if not hmac.compare_digest(mac.encode(), self._mac(told, about).encode()):
            raise Broken("a saved program was not saved by us, or not here")
        inflate = zlib.decompressobj()
        content = inflate.decompress(base64.b64decode(dump), _BIGGEST)
        return Snapshot(content, prints, {int(number): _pending(each) for number, each in pending.items()})

    def _mac(self, told: Mapping[str, JsonValue], about: str) -> str:
        return hmac.new(self._key, about.encode() + b"\0" + canonical_json(told), hashlib.sha256).hexdigest()


def _pending(told: JsonValue) -> Pending:
    match told:
        case [str(call), str(tool), dict(arguments)]:
            return Pending(CallId(call), tool, arguments)
        case _:
            raise Broken("a saved program has an unknown form")
