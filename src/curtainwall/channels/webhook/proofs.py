"""Who may deliver: what proves that a delivery comes from whoever knows the secret, and what makes it the same delivery again."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from curtainwall.model import Millis

_LONGEST_KEY: Final = 200


class DeliveryRefused(Exception):
    """A delivery is not taken: the status that its sender is told, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class Proof:
    """How a sender proves itself.

    `hmac` signs the body, and where a header with the time is named, `TIME.BODY`; then a delivery that is older than `tolerance` seconds is
    refused. `token` is the secret itself, in a header.
    """

    scheme: Literal["hmac", "token"]
    secret: str
    header: str
    prefix: str = ""
    time_header: str = ""
    key_header: str = ""
    tolerance: int = 300

    def checked(self, headers: Mapping[str, str], body: bytes, now: Millis) -> str:
        """Return the key of a delivery: the same for the same delivery, and never one that the sender has not signed; raise `Refused`.

        Headers are looked up in lower case.
        """
        told = headers.get(self.header.lower(), "")
        if not told:
            raise DeliveryRefused(401, f"the header `{self.header}` is missing")
        if self.scheme == "token":
            if not _is_same(told, f"{self.prefix}{self.secret}"):
                raise DeliveryRefused(401, "the token is wrong")
            return self._named(headers) or hashlib.sha256(body).hexdigest()
        signed = self._signed(headers, body, now)
        wanted = hmac.new(self.secret.encode(), signed, hashlib.sha256).hexdigest()
        if not _is_same(told, f"{self.prefix}{wanted}"):
            raise DeliveryRefused(401, "the signature is wrong")
        # A header that is not signed could be exchanged, and the same body be delivered once more under another name.
        return hashlib.sha256(signed).hexdigest()

    def _signed(self, headers: Mapping[str, str], body: bytes, now: Millis) -> bytes:
        if not self.time_header:
            return body
        told = headers.get(self.time_header.lower(), "")
        if not told.isdecimal() or not told.isascii() or len(told) > 12:
            raise DeliveryRefused(401, f"the header `{self.time_header}` must hold the time in seconds")
        if abs(now // 1000 - int(told)) > self.tolerance:
            raise DeliveryRefused(401, f"the delivery is older or newer than {self.tolerance} s; send it again, signed anew")
        return told.encode() + b"." + body

    def _named(self, headers: Mapping[str, str]) -> str:
        told = headers.get(self.key_header.lower(), "") if self.key_header else ""
        if len(told) > _LONGEST_KEY:
            raise DeliveryRefused(400, f"the header `{self.key_header}` is longer than {_LONGEST_KEY} characters")
        # A name of the sender's never looks like a digest of ours.
        return f"named:{hashlib.sha256(told.encode()).hexdigest()}" if told else ""


def _is_same(told: str, wanted: str) -> bool:
    return hmac.compare_digest(told.encode("utf-8", "replace"), wanted.encode())
