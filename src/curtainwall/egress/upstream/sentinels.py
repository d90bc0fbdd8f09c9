"""Stand-ins for keys: an agent holds one instead of a key, and the proxy swaps in the real one at the last moment.

INVARIANT: a request passes only with exactly one key, in the right header, that is this session's stand-in for this provider.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Sequence
from dataclasses import field
from functools import lru_cache
from hmac import compare_digest
from time import monotonic
from typing import Final, Protocol, runtime_checkable

from curtainwall.egress.refusals import Refused
from curtainwall.egress.upstream.providers import BEARER, Carrier, Provider
from curtainwall.host import CredentialSource, Unavailable
from curtainwall.model import record

Header = tuple[bytes, bytes]

_BITS: Final = 192
_KEPT_SECONDS: Final = 60.0
# A shorter key could occur in a reply by chance.
_SHORTEST: Final = 8
_MOST_REMEMBERED: Final = 4
# Header names that suggest a key. An idempotency key is not one.
_HOLDS_A_KEY = re.compile(
    rb"(?:^|[-_])(?:auth|authorization|authentication|token|secret|password|credentials?|api[-_]?keys?|keys?)(?:$|[-_])"
)
_HARMLESS: Final = frozenset((b"idempotency-key", b"x-idempotency-key", b"sec-websocket-key"))


@runtime_checkable
class Refreshing(Protocol):
    """A source whose value expires and can be refreshed, such as an OAuth token."""

    async def read(self) -> str:
        """Return the current value; raise `Unavailable`."""
        ...

    async def refresh(self, stale: str) -> str:
        """Return a newer value than the one that was just refused; raise `Unavailable`."""
        ...


@record
class Access:
    """A session's access to a provider: the source of the key, and the stand-in (a new one unless an older one is still in use)."""

    provider: Provider
    source: CredentialSource | Refreshing = field(repr=False)
    oauth: bool = False
    sentinel: str = field(default="", repr=False)


def mint(provider: Provider, *, oauth: bool = False) -> str:
    """Return a new stand-in: 192 random bits in the shape of the provider's keys or tokens."""
    return ((oauth and provider.token_shape) or provider.shape) + secrets.token_urlsafe(_BITS // 8)


@lru_cache(1024)
def _holds_a_key(name: bytes) -> bool:
    return name not in _HARMLESS and _HOLDS_A_KEY.search(name) is not None


class Keyring:
    """Checks one session's stand-in for a provider, and supplies the real key."""

    def __init__(self, access: Access) -> None:
        self._source = access.source
        self._carriers = {each.header: each for each in ((BEARER,) if access.oauth else access.provider.keys)}
        self._where = " or ".join(f"`{header}`" for header in self._carriers)
        self._name = access.provider.name
        self.sentinel = access.sentinel or mint(access.provider, oauth=access.oauth)
        self._value = ""
        self._until = 0.0
        self._used: tuple[bytes, ...] = ()
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Keyring({self._name})"

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """Return the values that must not appear in replies, the newest last."""
        return self._used

    def stripped(self, headers: Sequence[Header]) -> tuple[list[Header], Carrier]:
        """Return the headers without the stand-in, and its carrier; raise `Refused` unless it is the only key among them."""
        keys = [header for header in headers if _holds_a_key(header[0])]
        if not keys:
            raise Refused(403, f"the request has no key; send this session's own in {self._where}", kind="key")
        if len(keys) > 1:
            reason = f"the request has more than one key; send this session's own in {self._where}, and nothing else"
            raise Refused(403, reason, kind="key")
        (key,) = keys
        name, value = key
        carrier = self._carriers.get(name.decode("ascii", "replace"))
        if carrier is None or not compare_digest(value, f"{carrier.prefix}{self.sentinel}".encode()):
            reason = f"that is not this session's key for {self._name} in {self._where}; no other key is sent from here"
            raise Refused(403, reason, kind="key")
        return [header for header in headers if header is not key], carrier

    def foreign_key(self, headers: Sequence[Header]) -> str:
        """Return a key among the headers that is not our stand-in, without its prefix; empty if there is none."""
        values = (value.decode("latin-1").strip().rpartition(" ")[2] for name, value in headers if _holds_a_key(name))
        return next((value for value in values if value and value != self.sentinel), "")

    async def header(self, carrier: Carrier) -> Header:
        """Return the header with the real key; raise `Refused` if there is none."""
        now = monotonic()
        if now >= self._until:
            async with self._lock:
                if now >= self._until:
                    self._remember(await self._read_key(self._source.read()), now)
        return carrier.header.encode(), f"{carrier.prefix}{self._value}".encode()

    async def renew(self, refused: Header, carrier: Carrier) -> Header | None:
        """Return the header with a newer key than the one that was refused, or None if there is none."""
        source, stale = self._source, refused[1].decode().removeprefix(carrier.prefix)
        async with self._lock:
            if stale == self._value:
                if not isinstance(source, Refreshing):
                    self._until = 0.0
                    return None
                try:
                    self._remember(await self._read_key(source.refresh(stale)), monotonic())
                except Refused:
                    return None
        return None if stale == self._value else await self.header(carrier)

    async def _read_key(self, read: Awaitable[str]) -> str:
        try:
            value = await read
        except Unavailable:
            # The message may name the user's variables and files, which the agent need not know.
            raise Refused(503, f"the key for {self._name} is not to be had at the moment; the user can see why with `doctor`") from None
        if len(value) < _SHORTEST or not value.isascii() or not value.isprintable() or " " in value:
            raise Refused(503, f"what is configured as the key for {self._name} is no key")
        return value

    def _remember(self, value: str, now: float) -> None:
        self._value, self._until = value, now + _KEPT_SECONDS
        encoded = value.encode()
        self._used = (*(each for each in self._used if each != encoded), encoded)[-_MOST_REMEMBERED:]
