"""Whether a request may come in, by its head alone: what it asks for, and by which key; and the beginning of what goes out for it."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from curtainwall.egress.endpoints import Filter
from curtainwall.egress.headers import sendable
from curtainwall.egress.refusal import Refused
from curtainwall.egress.requests import Head
from curtainwall.egress.upstream.heads import request_start
from curtainwall.egress.upstream.providers import Carrier, Endpoint, Provider
from curtainwall.egress.upstream.sentinels import Keyring

_OVERRIDES: Final = frozenset((b"x-http-method-override", b"x-http-method", b"x-method-override"))


@dataclass(frozen=True, slots=True)
class Door:
    """A provider as this session has it."""

    provider: Provider
    filter: Filter
    keyring: Keyring


class Admitted(NamedTuple):
    """What a head means: the endpoint, the path and the model in it, what goes out for it up to the key, and where that stands."""

    endpoint: Endpoint
    path: str
    model: str
    start: bytes
    carrier: Carrier
    has_body: bool
    closes: bool


def admit(head: Head, door: Door) -> Admitted:
    """Return what a head means at this door; raise `Refused`. It depends on nothing else, so the same head means the same again."""
    if head.wants_upgrade:
        raise Refused(426, "there are no web sockets here; use plain requests")
    endpoint, model = door.filter.match(head.method, head.target, head.all(b"host"))
    if not _OVERRIDES.isdisjoint(head.names):
        raise Refused(403, "the request says that its method is another one", kind="endpoint")
    headers, carrier = door.keyring.stripped(head.headers)
    if head.all(b"content-encoding"):
        raise Refused(415, "the body must not be encoded", kind="malformed")
    has_body = head.method != "GET"
    if has_body and [kind.partition(";")[0].strip().lower() for kind in head.all(b"content-type")] != ["application/json"]:
        raise Refused(415, "the body must be JSON, and say so once", kind="malformed")
    start = request_start(head.method, head.target, [(b"host", door.provider.authority.encode()), *sendable(headers)])
    return Admitted(endpoint, head.target.partition("?")[0], model, start, carrier, has_body, head.wants_to_close)
