"""Which headers pass from a client to a provider, and from a provider to a client: nothing about the hop, the framing, or who is who."""

from collections.abc import Mapping, Sequence
from typing import Final

Header = tuple[bytes, bytes]

_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding upgrade".split()
)
_NOT_SENT: Final = _HOP_BY_HOP | frozenset(
    b"host content-length content-encoding accept-encoding expect cookie forwarded via x-real-ip max-forwards".split()
)
# Another protocol that would go past us, and what a provider would remember a client by.
_NOT_PASSED: Final = _HOP_BY_HOP | frozenset(b"content-length set-cookie set-cookie2 alt-svc strict-transport-security".split())


def sendable(headers: Sequence[Header]) -> list[Header]:
    """Return what of a client's headers a provider gets: nothing about the hop, the framing, or where it came from."""
    named = _named([value for name, value in headers if name == b"connection"])
    return [it for it in headers if it[0] not in _NOT_SENT and it[0] not in named and it[0][:12] != b"x-forwarded-"]


def passable(headers: Sequence[Header], told: Mapping[bytes, bytes]) -> list[Header]:
    """Return what of a provider's headers, which are told by name as well, a client gets."""
    if b"connection" not in told:
        return [it for it in headers if it[0] not in _NOT_PASSED]
    named = _named([value for name, value in headers if name == b"connection"])
    return [it for it in headers if it[0] not in _NOT_PASSED and it[0] not in named]


def _named(said: Sequence[bytes]) -> frozenset[bytes]:
    """Return the headers that are said to be for this hop alone."""
    return frozenset(part.strip().lower() for value in said for part in value.split(b","))
