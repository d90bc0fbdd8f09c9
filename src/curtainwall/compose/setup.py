"""The setup that every command starts from: home, configuration and rules, read from files and the environment."""

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path

from curtainwall.compose.approvals import approver_files, approver_programs, operators_in
from curtainwall.compose.hooks import hook_file, hook_settings
from curtainwall.compose.policy import known_in, linked_paths, lists_of, own_cards, own_files, own_policies, protection_of, rule_sources
from curtainwall.compose.servers import server_specs
from curtainwall.config.agents import BUILTIN, contained_agents
from curtainwall.config.loader import load_config
from curtainwall.config.schema import ActiveConfig, Config
from curtainwall.config.secrets import credentials_in, secret_files, secret_variables
from curtainwall.config.teams import team_files, team_variables
from curtainwall.host import Credential
from curtainwall.host.home import Home, find_home, user_homes
from curtainwall.host.home_path import stronger_homes
from curtainwall.model import Digest, Limits, Workspace, record
from curtainwall.model.people import parse_place
from curtainwall.operations.sessions import SessionTerms, workspace_at
from curtainwall.policy import Policy, Protection, RuleCard, load
from curtainwall.session import ActiveRules, BreakerLimits, RuleOwner, Rules
from curtainwall.tools.hooks import HookSettings
from curtainwall.tools.servers import ServerSpec

_LOG = logging.getLogger(__name__)


@record
class Setup:
    """The home, the configuration and the rules in force."""

    home: Home
    config: Config
    policy: Policy
    given: tuple[Path, ...] = ()
    servers: tuple[ServerSpec, ...] = ()
    credentials: tuple[Credential, ...] = ()
    hooks: HookSettings = field(default_factory=HookSettings)
    own_policies: Mapping[RuleOwner, Policy] = field(default_factory=dict[RuleOwner, Policy])
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    """A copy of the environment at load time, so that a reload finds the same home."""

    @property
    def rules(self) -> Rules:
        """Return what decisions depend on besides the log."""
        config = self.config
        return Rules(
            policy=self.policy,
            operators=operators_in(config),
            deadline=None if config.approvals.deadline is None else config.approvals.deadline * 1000,
            unrouted=config.approvals.unrouted,
            breaker=BreakerLimits(config.breaker.repeats, config.breaker.asks, config.breaker.window * 1000),
            calls=config.log.calls,
            logged_bytes=config.log.logged_bytes,
            askers={name: frozenset(team.askers) for name, team in config.teams.items() if team.askers is not None},
            own_policies=self.own_policies,
            known=known_in(config),
            depth=config.peers.depth,
            compact_after=config.peers.compact_after,
            view_agents=frozenset({BUILTIN, *contained_agents(config.agents)}),
        )

    @property
    def terms(self) -> SessionTerms:
        """Return the terms for opening sessions and deciding in them."""
        return SessionTerms(self.rules, self.limits, tuple(map(parse_place, self.config.approvals.targets)))

    def workspace_at(self, path: Path | str, *, own: bool, besides: frozenset[str] = frozenset()) -> Workspace:
        """Return a directory as a workspace; raise `CommandRefused` if it conflicts with a protected path that is not in `besides`."""
        return workspace_at(path, self.home, self.policy.protection, own=own, besides=besides)

    @property
    def versions(self) -> Mapping[str, Digest]:
        """Return the versions of the rules in force: the shared ones, and those of each team, job and webhook with its own."""
        own = {f"rules of {kind} `{name}`": policy.version for (kind, name), policy in self.own_policies.items()}
        return {"rules": self.policy.version, **own}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return warnings for the author of the rules."""
        policies = (self.policy, *self.own_policies.values())
        return tuple(dict.fromkeys(warning for policy in policies for warning in policy.warnings))

    @property
    def own_cards(self) -> Mapping[RuleCard, str]:
        """Return the rules that do not apply to all, and to whom each applies."""
        return own_cards(self.policy, self.own_policies)

    @property
    def own_ports(self) -> frozenset[int]:
        """Return our own ports on this machine, which agents may not reach."""
        status, webhooks = self.config.serve.status_port, self.config.webhooks
        webhook_ports = {webhooks.address[1]} if webhooks.hooks else set[int]()
        peer_ports = {self.config.peers.address[1]} if team_files(self.config.teams) or team_variables(self.config.teams) else set[int]()
        return frozenset({self.config.web.port, *({status} if status else set[int]()), *webhook_ports, *peer_ports})

    @property
    def limits(self) -> Limits:
        """Return the budgets of a new session."""
        section = self.config.limits
        return Limits(tokens=section.tokens, steps=section.steps, seconds=section.seconds, dollars=section.dollars, warn_at=section.warn_at)


class ActiveSetup:
    """The setup in force. It is only replaced as a whole, so each decision uses exactly one setup."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._terms = setup.terms
        self.config, self.rules = ActiveConfig(setup.config), ActiveRules(self._terms.rules)

    def take(self, setup: Setup) -> None:
        """Use this setup for every decision from now on."""
        self.setup, self._terms = setup, setup.terms
        self.config.now = setup.config
        self.rules.take(self._terms.rules)

    def terms(self) -> SessionTerms:
        """Return the terms in force."""
        return self._terms


def load_setup(
    policy_files: Iterable[Path] = (), environ: Mapping[str, str] = os.environ, changes: Mapping[str, object] | None = None
) -> Setup:
    """Load the setup from the environment and files; nothing is written, and no file has to exist.

    `changes` are tables of the configuration that count before those in the file.
    """
    home = find_home(environ)
    config = load_config(home.config, changes)
    extra = tuple(policy_files)
    lists = lists_of(home.config, config)
    protection = protection_for(home, config, extra, environ)
    sources, make = rule_sources(home, extra), partial(load, lists=lists, protection=protection)
    policy, own = make(sources), own_policies(home, config, sources, make)
    is_there = "read" if home.config.is_file() else "not there, so the defaults hold"
    _LOG.info("home `%s`; config.toml %s; rule files: %s", home.root, is_there, ", ".join(source.name for source in sources))
    servers = server_specs(config, secret_variables(config), environ)
    credentials, hooks = credentials_in(config, environ), hook_settings(home, config, environ)
    return Setup(home, config, policy, extra, servers, credentials, hooks, own, dict(environ))


def protection_for(home: Home, config: Config, policy_files: Iterable[Path] = (), environ: Mapping[str, str] = os.environ) -> Protection:
    """Return the protected paths of this machine, including those that the user named and all rule files."""
    hooks = hook_file(config, environ)
    ours = (*secret_files(config), *linked_paths(home, environ), *(() if hooks is None else (str(hooks),)), *approver_files(config))
    rules = (str(path.absolute()) for path in (*own_files(config).values(), *policy_files))
    never = (*config.protected.never, *ours, *rules, *stronger_homes(environ))
    return protection_of(home, user_homes(environ), never, config.protected.readonly, approver_programs(config))
