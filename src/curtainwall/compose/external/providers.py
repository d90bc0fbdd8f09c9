"""The providers that external agents may reach: their addresses, and the sources of their keys. No key is read here."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from urllib.parse import urlsplit

from curtainwall.compose.models import key_in
from curtainwall.config.agents import SIGNS_IN, AgentSection, KeySection
from curtainwall.config.schema import Config, NamedModelSection
from curtainwall.config.secrets import source_of
from curtainwall.config.teams import TeamSection
from curtainwall.egress import ANTHROPIC, GEMINI, OPENAI, Access, Provider, openai_compatible
from curtainwall.facts import Unclear
from curtainwall.host import CredentialSource, FromEnvironment, Unavailable
from curtainwall.model import Broken, CommandRefused, NotFound, record

Learn = Callable[[str, str], None]
"""Tells the masker a key, by name and value, before it is used."""

_KNOWN = {provider.name: provider for provider in (ANTHROPIC, OPENAI, GEMINI)}
_VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
# The paths that users write in base URLs, because the libraries want them; our endpoints begin at the host.
_PATHS = {"anthropic": ("", "/v1"), "openai": ("", "/v1"), "gemini": ("", "/v1beta", "/v1beta/openai")}
_NO_KEY = "no-key-is-needed"
_TOKEN_VARIABLE = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105 - the name of a variable


@record
class _MaskedSource:
    """A credential source that tells the masker each value as soon as it is read."""

    name: str
    source: CredentialSource = field(repr=False)
    learn: Learn = field(repr=False)

    @property
    def is_at_hand(self) -> bool:
        """Whether reading it costs nothing."""
        return self.source.is_at_hand

    async def read(self) -> str:
        """Return the value; raise `Unavailable`."""
        value = await self.source.read()
        self.learn(f"{self.name}-key", value)
        return value

    async def refresh(self, stale: str) -> str:
        """Read the value again: signing in on this machine may have replaced it."""
        value = await self.read()
        if value == stale:
            raise Unavailable(f"the key for {self.name} is still the one that was refused")
        return value


def accesses(
    config: Config, learn: Learn, environ: Mapping[str, str] = os.environ, *, agent: str = "", team: str = ""
) -> dict[str, Access]:
    """Return what an agent may reach, by provider name: the providers with a key, and the user's own model servers.

    INVARIANT: an agent or team that has its own key for a provider never gets the shared one, even if its own cannot be read. A team's
    key takes precedence over its agent's.
    """
    by_name: dict[str, Access] = {}
    own = {**_own_keys(config.agents, agent), **_own_keys(config.teams, team)}
    names = {**{name: f"{agent}-{name}" for name in own}, **{name: f"team-{team}-{name}" for name in _own_keys(config.teams, team)}}
    for name, provider in _KNOWN.items():
        section = config.models.get(name)
        key = None if section is None else key_in(section, environ)
        if key is None and environ.get(_VARIABLES[name], "").strip():
            key = FromEnvironment(_VARIABLES[name], environ)
        is_token = section is not None and section.oauth
        if is_token and name != SIGNS_IN:
            raise Broken(f"[models.{name}]: `oauth` is for `{SIGNS_IN}` alone; take it away, or write a key")
        if key is None and name == SIGNS_IN and environ.get(_TOKEN_VARIABLE, "").strip():
            key, is_token = FromEnvironment(_TOKEN_VARIABLE, environ), True
        if name in own:
            key, is_token = source_of(own[name], environ), own[name].oauth
        if key is not None:
            by_name[name] = Access(_placed(provider, section), _MaskedSource(names.get(name, name), key, learn), oauth=is_token)
    for name, section in config.models.items():
        if name not in _KNOWN and section.url is not None:
            key = key_in(section, environ) or FromEnvironment("key", {"key": _NO_KEY})
            key = source_of(own[name], environ) if name in own else key
            by_name[name] = Access(_own(name, section.url), _MaskedSource(names.get(name, name), key, learn))
    return by_name


def require_matching_keys(config: Config, agent: str, providers: Iterable[str], *, team: str = "") -> None:
    """Raise `Broken` if an agent, or a team that it serves, has its own key for a provider that the agent does not use."""
    known = tuple(providers)
    agent_keys = [f"agents.{agent}.keys.{name}" for name in _own_keys(config.agents, agent)]
    for place in (*agent_keys, *(f"teams.{team}.keys.{name}" for name in _own_keys(config.teams, team))):
        name = place.rpartition(".")[2]
        if name not in known:
            raise Broken(f"[{place}]: {agent} does not talk to `{name}`; it talks to: {', '.join(known)}")


def require_team_keys(initial: Config, current: Config, team: str) -> None:
    """Raise `CommandRefused` if a team's keys have changed since the start: their files are only protected after a restart."""
    if _own_keys(initial.teams, team) != _own_keys(current.teams, team):
        raise CommandRefused(f"`teams.{team}.keys` has changed; start this process again, and team `{team}` uses them")


async def missing_keys(access_by_name: Mapping[str, Access]) -> dict[str, str]:
    """Return why keys cannot be read, by provider name; sources that may prompt somebody are not tried."""
    missing: dict[str, str] = {}
    for name, access in access_by_name.items():
        if isinstance(access.source, _MaskedSource) and access.source.is_at_hand:
            try:
                await access.source.read()
            except Unavailable as fault:
                missing[name] = str(fault)
    return missing


async def require_key(agent: str, access_by_name: Mapping[str, Access], providers: Iterable[str]) -> None:
    """Raise `NotFound`, with what to do, if an agent can get no key for any of its providers."""
    names = tuple(providers)
    usable = {name: access_by_name[name] for name in names if name in access_by_name}
    if names and not usable:
        raise NotFound(f"`{agent}` has no key for its models; {key_remedy(names)}")
    missing = await missing_keys(usable)
    if usable and missing.keys() == usable.keys():
        raise NotFound(f"`{agent}` cannot get the key for its models: {'; '.join(missing.values())}")


def key_remedy(names: Iterable[str]) -> str:
    """Return how to set a key for one of these providers."""
    providers = tuple(names)
    each = [f"set {_VARIABLES[name]}" if name in _VARIABLES else f"write [models.{name}]" for name in providers]
    # Only Claude Code signs in with such a token, and it uses no other provider.
    token = f", or {_TOKEN_VARIABLE} with the token of a subscription" if providers == (ANTHROPIC.name,) else ""
    return f"{' or '.join(each)}{token}; docs/models.md has the places for keys"


def _own_keys(sections: Mapping[str, AgentSection] | Mapping[str, TeamSection], name: str) -> Mapping[str, KeySection]:
    """Return the keys in one agent's or team's section, by provider name."""
    section = sections.get(name)
    return {} if section is None else section.keys


def _placed(provider: Provider, section: NamedModelSection | None) -> Provider:
    if section is None or section.url is None:
        return provider
    origin, path = _split(provider.name, section.url)
    if path not in _PATHS[provider.name]:
        raise Broken(f"[models.{provider.name}]: agents in containers ask for paths of their own; write `{origin}` as its `url`")
    return provider.at(origin)


def _own(name: str, url: str) -> Provider:
    origin, path = _split(name, url)
    return openai_compatible(name, f"{name}.models.internal", origin, path)


def _split(name: str, url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    try:
        ANTHROPIC.at(origin)
    except Unclear as fault:
        raise Broken(f"[models.{name}]: {fault.message}") from None
    return origin, parts.path.rstrip("/")
