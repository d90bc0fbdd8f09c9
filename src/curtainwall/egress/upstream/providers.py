"""The providers as data: the host that clients ask for, its real address, its endpoints, and where its key goes."""

import re
from dataclasses import replace
from typing import Final

from curtainwall.egress.refusals import Dialect
from curtainwall.facts import Unclear, canonical_url
from curtainwall.model import HostFacts, record

# The path segment that a client may choose: a model's name.
_CHOSEN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"


@record
class ProviderEndpoint:
    """A method and a path, in which `NAME` is a model's name. The tokens of a `model` endpoint's replies are counted."""

    method: str
    path: str
    dialect: Dialect
    model: bool = True

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return a pattern that matches exactly this path."""
        return re.compile(re.escape(self.path).replace("NAME", f"(?P<name>{_CHOSEN})"))


@record
class Carrier:
    """Where a key goes: a header, and the prefix before the key."""

    header: str
    prefix: str = ""


BEARER: Final = Carrier("authorization", "Bearer ")


@record
class Provider:
    """A provider. Clients ask for `host`; requests go to `upstream`, which is the same unless a user configured another base URL.

    `keys` lists where a key may go; an OAuth token is always a bearer token. Stand-ins begin with `shape` or `token_shape`.
    """

    name: str
    host: str
    upstream: HostFacts
    endpoints: tuple[ProviderEndpoint, ...]
    keys: tuple[Carrier, ...] = (BEARER,)
    shape: str = "sk-"
    token_shape: str = ""
    unserved: frozenset[str] = frozenset()
    """Paths that the provider's own programs request in every turn. They are refused like all others, but not recorded."""

    @property
    def authority(self) -> str:
        """Return the upstream as in a Host header."""
        host = f"[{self.upstream.host}]" if ":" in self.upstream.host else self.upstream.host
        usual = 443 if self.upstream.secure else 80
        return host if self.upstream.port == usual else f"{host}:{self.upstream.port}"

    def at(self, base_url: str) -> "Provider":
        """Return the same provider at a base URL that the user configured; it may be on this machine or its network."""
        return replace(self, upstream=_place(base_url))


def _place(base_url: str) -> HostFacts:
    url = canonical_url(base_url)
    if url.text.removeprefix(url.origin) not in {"", "/"}:
        raise Unclear(f"`{base_url}` holds a path; name the host alone")
    return url.facts


def _models(start: str, dialect: Dialect) -> tuple[ProviderEndpoint, ...]:
    return (
        ProviderEndpoint("GET", f"{start}/models", dialect, model=False),
        ProviderEndpoint("GET", f"{start}/models/NAME", dialect, model=False),
    )


ANTHROPIC: Final = Provider(
    name="anthropic",
    host="api.anthropic.com",
    upstream=_place("https://api.anthropic.com"),
    endpoints=(
        ProviderEndpoint("POST", "/v1/messages", Dialect.ANTHROPIC),
        ProviderEndpoint("POST", "/v1/messages/count_tokens", Dialect.ANTHROPIC, model=False),
        *_models("/v1", Dialect.ANTHROPIC),
    ),
    # The provider's newer libraries send keys the same way as tokens.
    keys=(Carrier("x-api-key"), BEARER),
    shape="sk-ant-api03-",
    token_shape="sk-ant-oat01-",  # noqa: S106 - how any such token begins
    unserved=frozenset(("/api/claude_code/settings", "/api/claude_code/policy_limits")),
)

OPENAI: Final = Provider(
    name="openai",
    host="api.openai.com",
    upstream=_place("https://api.openai.com"),
    endpoints=(
        ProviderEndpoint("POST", "/v1/responses", Dialect.RESPONSES),
        ProviderEndpoint("POST", "/v1/chat/completions", Dialect.CHAT),
        *_models("/v1", Dialect.CHAT),
    ),
    shape="sk-proj-",
)

GEMINI: Final = Provider(
    name="gemini",
    host="generativelanguage.googleapis.com",
    upstream=_place("https://generativelanguage.googleapis.com"),
    endpoints=(
        ProviderEndpoint("POST", "/v1beta/models/NAME:generateContent", Dialect.GEMINI),
        ProviderEndpoint("POST", "/v1beta/models/NAME:streamGenerateContent", Dialect.GEMINI),
        ProviderEndpoint("POST", "/v1beta/models/NAME:countTokens", Dialect.GEMINI, model=False),
        *_models("/v1beta", Dialect.GEMINI),
    ),
    keys=(Carrier("x-goog-api-key"),),
    shape="AIza",
)


KNOWN_HOSTS: Final = frozenset(provider.host for provider in (ANTHROPIC, OPENAI, GEMINI))
"""Hosts of model APIs. They are never tunnelled blindly, because an agent could use its own key there unseen."""


def openai_compatible(name: str, host: str, base_url: str, path: str = "/v1") -> Provider:
    """Return a user's OpenAI-compatible provider: clients ask for `https://HOST/PATH/…`, which goes to the base URL's host."""
    endpoints = (
        ProviderEndpoint("POST", f"{path}/chat/completions", Dialect.CHAT),
        ProviderEndpoint("POST", f"{path}/responses", Dialect.RESPONSES),
        *_models(path, Dialect.CHAT),
    )
    return Provider(name=name, host=host, upstream=_place(base_url), endpoints=endpoints)
