"""Which requests may go to a provider: exactly the listed methods and paths, in the one spelling that nobody reads differently."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_plus

from curtainwall.egress.refusal import Refused
from curtainwall.egress.upstream.providers import Endpoint, Provider

Headers = Sequence[tuple[bytes, bytes]]

_PATH = re.compile(r"(?:/[A-Za-z0-9._~:@-]+)+")
_DOTS: Final = frozenset((".", ".."))
# Parameters that carry a key, or headers and methods that the filter would not see.
_TREACHEROUS: Final = frozenset(
    "key apikey xapikey xgoogapikey accesstoken oauthtoken bearertoken token auth authorization httpheaders httpmethod override".split()
)


class Filter:
    """The endpoints of one provider, ready to be matched."""

    def __init__(self, provider: Provider) -> None:
        self._host = provider.host
        self._hosts = frozenset((provider.host, f"{provider.host}:443"))
        self._name = provider.name
        self._unserved = provider.unserved
        self._exact = {(each.method, each.path): each for each in provider.endpoints if "NAME" not in each.path}
        self._chosen = [(each, each.pattern) for each in provider.endpoints if "NAME" in each.path]

    def match(self, method: str, target: str, hosts: Sequence[str]) -> tuple[Endpoint, str]:
        """Return the endpoint that a request means and the model's name in its path; raise `Refused`."""
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            raise Refused(403, f"the Host header is not `{self._host}`, the host of this connection", kind="endpoint")
        path, _, query = target.partition("?")
        if not path.startswith("/"):
            raise Refused(403, "inside a connection only paths can be asked for, no whole URLs", kind="endpoint")
        if query:
            _see_that_no_key_is_in(query)
        found = self._exact.get((method, path))
        if found is not None:
            return found, ""
        if not _PATH.fullmatch(path) or not _DOTS.isdisjoint(path.split("/")):
            raise Refused(403, "the path is not in its plain spelling: no `//`, no dots, no escapes, no slash at the end", kind="endpoint")
        for endpoint, pattern in self._chosen:
            if endpoint.method == method and (match := pattern.fullmatch(path)):
                return endpoint, match["name"]
        reason = f"`{method[:16]} {path[:200]}` is not among the endpoints of {self._name} that may be used"
        is_usual = method == "GET" and not query and path in self._unserved
        raise Refused(403, reason, kind=None if is_usual else "endpoint")


@lru_cache(256)
def _see_that_no_key_is_in(query: str) -> None:
    if "#" in query:
        raise Refused(403, "a request has no fragment", kind="endpoint")
    for pair in re.split("[&;]", query):
        name = re.sub("[^a-z0-9]", "", unquote_plus(pair.partition("=")[0]).lower())
        if name in _TREACHEROUS:
            raise Refused(403, "the query carries a key or an override; send the session's key in its header", kind="key")
