"""Snapshots of programs, sealed with a key that no agent has and bound to their place; any other data is refused."""

import base64
import hashlib
import hmac
import json
import os
import zlib
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from curtainwall.model import Broken, CallId, canonical_json, record

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_BIGGEST = 512 * 1024 * 1024
_NONCE = 12
_NOT_OURS = "a saved program was not saved by us, or not here"
_UNKNOWN = "a saved program has an unknown form"


@record
class PendingCall:
    """A call of a program that has no result yet."""

    call: CallId
    tool: str
    arguments: Mapping[str, JsonValue]


@record
class ProgramSnapshot:
    """A waiting program: the interpreter's dump, what was printed so far, and its open calls by the interpreter's numbers.

    `code` is the program as its model wrote it, which the log holds masked; None if an earlier version saved the program.
    """

    dump: bytes
    prints: str
    pending: Mapping[int, PendingCall]
    code: str | None = None


class SnapshotSeal:
    """Seals and opens snapshots. The interpreter trusts whatever it loads, so it gets only what we sealed ourselves.

    A snapshot holds the model's program unmasked. It is encrypted, so that the log and its blobs reveal nothing without the key.
    """

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.blake2b(b"program snapshots", key=key[:64]).digest()

    def way_out(self, about: str) -> str:
        """Return the name of a program's only external function: the same after every wait, and impossible to guess."""
        return f"_out_{hmac.new(self._key, b'way out' + about.encode(), hashlib.sha256).hexdigest()[:24]}"

    def close(self, snapshot: ProgramSnapshot, about: str) -> JsonValue:
        """Return the snapshot in the log's form, bound to its session, program and step."""
        head = canonical_json(
            {
                "code": snapshot.code,
                "prints": snapshot.prints,
                "pending": {str(number): [each.call, each.tool, dict(each.arguments)] for number, each in snapshot.pending.items()},
            }
        )
        content = zlib.compress(b"%d\n%b%b" % (len(head), head, snapshot.dump), 1)
        nonce = os.urandom(_NONCE)
        return {"sealed": base64.b64encode(nonce + self._cipher.encrypt(nonce, content, about.encode())).decode()}

    def open(self, sealed: JsonValue, about: str) -> ProgramSnapshot:
        """Return a snapshot that we sealed for the same place; raise `Broken` for any other."""
        match sealed:
            case {"sealed": str(content)}:
                return self._opened(content, about)
            case {"dump": str(dump), "prints": str(prints), "pending": dict(pending), "mac": str(mac)}:
                # The format of 0.1.0: authenticated but not encrypted.
                fields: dict[str, JsonValue] = {"dump": dump, "prints": prints, "pending": pending}
                if not hmac.compare_digest(mac.encode(), self._mac(fields, about).encode()):
                    raise Broken(_NOT_OURS)
                return ProgramSnapshot(_inflated(base64.b64decode(dump)), prints, _pending_in(pending))
            case _:
                raise Broken(_UNKNOWN)

    # The library is loaded when a program waits, not at every start.
    def _opened(self, sealed: str, about: str) -> ProgramSnapshot:
        from cryptography.exceptions import InvalidTag

        try:
            data = base64.b64decode(sealed, validate=True)
            content = self._cipher.decrypt(data[:_NONCE], data[_NONCE:], about.encode())
        except (InvalidTag, ValueError):
            raise Broken(_NOT_OURS) from None
        size, _, rest = _inflated(content).partition(b"\n")
        match cast("JsonValue", json.loads(rest[: int(size)])):
            case {"code": str() | None as code, "prints": str(prints), "pending": dict(pending)}:
                return ProgramSnapshot(rest[int(size) :], prints, _pending_in(pending), code)
            case _:
                raise Broken(_UNKNOWN)

    @cached_property
    def _cipher(self) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(hashlib.blake2b(b"encryption", key=self._key, digest_size=32).digest())

    def _mac(self, fields: Mapping[str, JsonValue], about: str) -> str:
        return hmac.new(self._key, about.encode() + b"\0" + canonical_json(fields), hashlib.sha256).hexdigest()


def _inflated(content: bytes) -> bytes:
    return zlib.decompressobj().decompress(content, _BIGGEST)


def _pending_in(calls: Mapping[str, JsonValue]) -> dict[int, PendingCall]:
    return {int(number): _pending(call) for number, call in calls.items()}


def _pending(value: JsonValue) -> PendingCall:
    match value:
        case [str(call), str(tool), dict(arguments)]:
            return PendingCall(CallId(call), tool, arguments)
        case _:
            raise Broken(_UNKNOWN)
