"""The providers that foreign agents may reach: where each is, and where its key comes from. No key is read here."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from curtainwall.compose.models import key_in
from curtainwall.config.agents import SIGNS_IN, AgentSection, KeySection
from curtainwall.config.schema import Config, NamedModelSection
from curtainwall.config.secrets import source_of
from curtainwall.config.teams import TeamSection
from curtainwall.egress import ANTHROPIC, GEMINI, OPENAI, Access, Provider, openai_compatible
from curtainwall.facts import Unclear
from curtainwall.host import CredentialSource, FromEnvironment, Unavailable
from curtainwall.model import Broken, CommandRefused, NotFound

Learn = Callable[[str, str], None]
"""Whoever masks learns a key, by its name and value, before it is used."""

_KNOWN = {provider.name: provider for provider in (ANTHROPIC, OPENAI, GEMINI)}
_VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
# How users write the base URL of each, because its libraries want it so; our endpoints begin at the host.
_PATHS = {"anthropic": ("", "/v1"), "openai": ("", "/v1"), "gemini": ("", "/v1beta", "/v1beta/openai")}
_NO_KEY = "no-key-is-needed"
_TOKEN_VARIABLE = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class _MaskedSource:
    """A source whose value is masked from the moment at which it is known."""

    name: str
    source: CredentialSource = field(repr=False)
    learn: Learn = field(repr=False)

    @property
    def is_at_hand(self) -> bool:
        """Tell whether reading it costs nothing."""
        return self.source.is_at_hand

    async def read(self) -> str:
        """Return the value; raise `Unavailable`."""
        value = await self.source.read()
        self.learn(f"{self.name}-key", value)
        return value

    async def refresh(self, stale: str) -> str:
        """Return the value as it is by now: whoever signs in on this machine may have put a newer one there."""
        value = await self.read()
        if value == stale:
            raise Unavailable(f"the key for {self.name} is still the one that was refused")
        return value


def accesses(
    config: Config, learn: Learn, environ: Mapping[str, str] = os.environ, *, agent: str = "", team: str = ""
) -> dict[str, Access]:
    """Return what an agent may be given, by the provider's name: those with a key, and servers of the user's own.

    INVARIANT: an agent, or a team, with a key of its own for a provider never gets the one that all others use, also where its own cannot
    be read. A team's goes before its agent's.
    """
    found: dict[str, Access] = {}
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
            found[name] = Access(_placed(provider, section), _MaskedSource(names.get(name, name), key, learn), oauth=is_token)
    for name, section in config.models.items():
        if name not in _KNOWN and section.url is not None:
            key = key_in(section, environ) or FromEnvironment("key", {"key": _NO_KEY})
            key = source_of(own[name], environ) if name in own else key
            found[name] = Access(_own(name, section.url), _MaskedSource(names.get(name, name), key, learn))
    return found


def require_matching_keys(config: Config, agent: str, providers: Iterable[str], *, team: str = "") -> None:
    """Raise `Broken` where an agent, or a team that it serves, has a key of its own for a provider that it does not talk to."""
    able = tuple(providers)
    own = [f"agents.{agent}.keys.{name}" for name in _own_keys(config.agents, agent)]
    for place in (*own, *(f"teams.{team}.keys.{name}" for name in _own_keys(config.teams, team))):
        name = place.rpartition(".")[2]
        if name not in able:
            raise Broken(f"[{place}]: {agent} does not talk to `{name}`; it talks to: {', '.join(able)}")


def require_team_keys(begun: Config, now: Config, team: str) -> None:
    """Raise `CommandRefused` where a team's keys are others than at the start: only at the next are their places protected."""
    if _own_keys(begun.teams, team) != _own_keys(now.teams, team):
        raise CommandRefused(f"`teams.{team}.keys` has changed; start this process again, and team `{team}` uses them")


async def missing_keys(found: Mapping[str, Access]) -> dict[str, str]:
    """Return why a key cannot be had, by the provider's name; places where reading asks somebody are not tried."""
    missing: dict[str, str] = {}
    for name, access in found.items():
        if isinstance(access.source, _MaskedSource) and access.source.is_at_hand:
            try:
                await access.source.read()
            except Unavailable as fault:
                missing[name] = str(fault)
    return missing


async def require_key(agent: str, found: Mapping[str, Access], wanted: Iterable[str]) -> None:
    """Raise `NotFound`, with what to do, where an agent that talks to these providers can get no key for any of them."""
    named = tuple(wanted)
    given = {name: found[name] for name in named if name in found}
    if named and not given:
        raise NotFound(f"`{agent}` has no key for its models; {key_remedy(named)}")
    missing = await missing_keys(given)
    if given and missing.keys() == given.keys():
        raise NotFound(f"`{agent}` cannot get the key for its models: {'; '.join(missing.values())}")


def key_remedy(names: Iterable[str]) -> str:
    """Return what to do for a key of one of these providers."""
    named = tuple(names)
    each = [f"set {_VARIABLES[name]}" if name in _VARIABLES else f"write [models.{name}]" for name in named]
    # Whoever can use other providers, too, is not Claude Code, which alone signs in with such a token.
    token = f", or {_TOKEN_VARIABLE} with the token of a subscription" if named == (ANTHROPIC.name,) else ""
    return f"{' or '.join(each)}{token}; docs/models.md has the places for keys"


def _own_keys(sections: Mapping[str, AgentSection] | Mapping[str, TeamSection], name: str) -> Mapping[str, KeySection]:
    """Return the keys that somebody has of their own, by the provider's name."""
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
