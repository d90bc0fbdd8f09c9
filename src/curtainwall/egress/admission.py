"""Admits requests by their head alone: only the listed methods and paths, and only with this session's stand-in key."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

from curtainwall.egress.refusals import Refused
from curtainwall.egress.requests import RequestHead
from curtainwall.egress.upstream.http1 import request_start, sendable
from curtainwall.egress.upstream.providers import Carrier, Provider, ProviderEndpoint
from curtainwall.egress.upstream.sentinels import Keyring
from curtainwall.model import record

Headers = Sequence[tuple[bytes, bytes]]

_PATH = re.compile(r"(?:/[A-Za-z0-9._~:@-]+)+")
_DOTS: Final = frozenset((".", ".."))
# Parameters that carry a key, or headers and methods that the filter would not see.
_TREACHEROUS: Final = frozenset(
    "key apikey xapikey xgoogapikey accesstoken oauthtoken bearertoken token auth authorization httpheaders httpmethod override".split()
)


class EndpointFilter:
    """Matches requests against the endpoints of one provider."""

    def __init__(self, provider: Provider) -> None:
        self._host = provider.host
        self._hosts = frozenset((provider.host, f"{provider.host}:443"))
        self._name = provider.name
        self._unserved = provider.unserved
        self._exact = {(each.method, each.path): each for each in provider.endpoints if "NAME" not in each.path}
        self._chosen = [(each, each.pattern) for each in provider.endpoints if "NAME" in each.path]

    def match(self, method: str, target: str, hosts: Sequence[str]) -> tuple[ProviderEndpoint, str]:
        """Return the endpoint of a request and the model's name in its path; raise `Refused` if there is none."""
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            raise Refused(403, f"the Host header is not `{self._host}`, the host of this connection", kind="endpoint")
        path, _, query = target.partition("?")
        if not path.startswith("/"):
            raise Refused(403, "inside a connection only paths can be asked for, no whole URLs", kind="endpoint")
        if query:
            _require_no_key(query)
        exact = self._exact.get((method, path))
        if exact is not None:
            return exact, ""
        if not _PATH.fullmatch(path) or not _DOTS.isdisjoint(path.split("/")):
            raise Refused(403, "the path is not in its plain spelling: no `//`, no dots, no escapes, no slash at the end", kind="endpoint")
        for endpoint, pattern in self._chosen:
            if endpoint.method == method and (match := pattern.fullmatch(path)):
                return endpoint, match["name"]
        reason = f"`{method[:16]} {path[:200]}` is not among the endpoints of {self._name} that may be used"
        is_usual = method == "GET" and not query and path in self._unserved
        raise Refused(403, reason, kind=None if is_usual else "endpoint")


@lru_cache(256)
def _require_no_key(query: str) -> None:
    if "#" in query:
        raise Refused(403, "a request has no fragment", kind="endpoint")
    for pair in re.split("[&;]", query):
        name = re.sub("[^a-z0-9]", "", unquote_plus(pair.partition("=")[0]).lower())
        if name in _TREACHEROUS:
            raise Refused(403, "the query carries a key or an override; send the session's key in its header", kind="key")


_OVERRIDES: Final = frozenset((b"x-http-method-override", b"x-http-method", b"x-method-override"))


@record
class SessionProvider:
    """A provider with this session's filter and keys."""

    provider: Provider
    filter: EndpointFilter
    keyring: Keyring


class AdmittedRequest(NamedTuple):
    """An admitted head: the endpoint, its path and model, the start of the outgoing head, and where the key goes."""

    endpoint: ProviderEndpoint
    path: str
    model: str
    start: bytes
    carrier: Carrier
    has_body: bool
    closes: bool


def admit(head: RequestHead, access: SessionProvider) -> AdmittedRequest:
    """Return what a head means for this provider; raise `Refused`. It depends on nothing else, so the result can be reused."""
    if head.wants_upgrade:
        raise Refused(426, "there are no web sockets here; use plain requests")
    endpoint, model = access.filter.match(head.method, head.target, head.all(b"host"))
    if not _OVERRIDES.isdisjoint(head.names):
        raise Refused(403, "the request says that its method is another one", kind="endpoint")
    headers, carrier = access.keyring.stripped(head.headers)
    if head.all(b"content-encoding"):
        raise Refused(415, "the body must not be encoded", kind="malformed")
    has_body = head.method != "GET"
    if has_body and [kind.partition(";")[0].strip().lower() for kind in head.all(b"content-type")] != ["application/json"]:
        raise Refused(415, "the body must be JSON, and say so once", kind="malformed")
    start = request_start(head.method, head.target, [(b"host", access.provider.authority.encode()), *sendable(headers)])
    return AdmittedRequest(endpoint, head.target.partition("?")[0], model, start, carrier, has_body, head.wants_to_close)
