"""Proofs: how a delivery shows that its sender knows the secret, and which key identifies a repeated delivery."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, Literal

from curtainwall.model import Millis, record

_LONGEST_KEY: Final = 200


class DeliveryRefused(Exception):
    """A delivery was refused: the HTTP status for its sender, and the reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@record
class Proof:
    """How a sender proves itself.

    `hmac` signs the body, or `TIME.BODY` if a header with the time is configured; then a delivery older than `tolerance` seconds is
    refused. `token` sends the secret itself in a header.
    """

    scheme: Literal["hmac", "token"]
    secret: str
    header: str
    prefix: str = ""
    time_header: str = ""
    key_header: str = ""
    tolerance: int = 300

    def checked(self, headers: Mapping[str, str], body: bytes, now: Millis) -> str:
        """Return the key of a delivery: the same if it is repeated, and derived only from what the sender signed; raise `DeliveryRefused`.

        Headers are looked up in lower case.
        """
        proof = headers.get(self.header.lower(), "")
        if not proof:
            raise DeliveryRefused(401, f"the header `{self.header}` is missing")
        if self.scheme == "token":
            if not _is_same(proof, f"{self.prefix}{self.secret}"):
                raise DeliveryRefused(401, "the token is wrong")
            return self._sender_key(headers) or hashlib.sha256(body).hexdigest()
        signed = self._signed(headers, body, now)
        expected = hmac.new(self.secret.encode(), signed, hashlib.sha256).hexdigest()
        if not _is_same(proof, f"{self.prefix}{expected}"):
            raise DeliveryRefused(401, "the signature is wrong")
        # An unsigned header could be replaced, and the same body delivered again under another key.
        return hashlib.sha256(signed).hexdigest()

    def _signed(self, headers: Mapping[str, str], body: bytes, now: Millis) -> bytes:
        if not self.time_header:
            return body
        sent_at = headers.get(self.time_header.lower(), "")
        if not sent_at.isdecimal() or not sent_at.isascii() or len(sent_at) > 12:
            raise DeliveryRefused(401, f"the header `{self.time_header}` must hold the time in seconds")
        if abs(now // 1000 - int(sent_at)) > self.tolerance:
            raise DeliveryRefused(401, f"the delivery is older or newer than {self.tolerance} s; send it again, signed anew")
        return sent_at.encode() + b"." + body

    def _sender_key(self, headers: Mapping[str, str]) -> str:
        key = headers.get(self.key_header.lower(), "") if self.key_header else ""
        if len(key) > _LONGEST_KEY:
            raise DeliveryRefused(400, f"the header `{self.key_header}` is longer than {_LONGEST_KEY} characters")
        # A key chosen by the sender can never look like one of our digests.
        return f"named:{hashlib.sha256(key.encode()).hexdigest()}" if key else ""


def _is_same(received: str, expected: str) -> bool:
    return hmac.compare_digest(received.encode("utf-8", "replace"), expected.encode())
