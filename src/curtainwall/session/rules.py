"""The inputs of a decision besides the log: policy, a project's standing grants, operators and limits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from curtainwall import policy as judging
from curtainwall.model import BUILTIN_AGENT, HOUSE_CHANNELS, Grant, GrantId, Millis, NotAllowed, RuleId, SessionOpened, Who, record
from curtainwall.session.limits import BreakerLimits

if TYPE_CHECKING:
    # Start-up time: commands that only answer or list judge nothing.
    from curtainwall.policy import Policy

RuleOwner = tuple[Literal["team", "job", "webhook"], str]
"""The owner of a rule file beside the house's: a team, a job or a webhook, by name."""

_TABLES: Final = {"team": "teams", "job": "cron", "webhook": "webhooks.hooks"}


@record
class Rules:
    """The rules in force at the moment of a decision."""

    policy: "Policy"
    project_grants: Mapping[GrantId, Grant] = field(default_factory=dict[GrantId, Grant])
    operators: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    deadline: Millis | None = None
    unrouted: Literal["park", "deny"] = "park"
    breaker: BreakerLimits = field(default_factory=BreakerLimits)
    calls: int = 100_000
    logged_bytes: int = 1_000_000_000
    askers: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Who may ask each team that restricts this."""
    own_policies: "Mapping[RuleOwner, Policy]" = field(default_factory=dict[RuleOwner, "Policy"])
    """For each team, job and webhook with its own rule file: the house's rules together with those of the file."""
    known: frozenset[RuleOwner] | None = None
    """The configured teams, jobs and webhooks; sessions of any others may do nothing. None disables the check."""
    depth: int = 4
    """How many teams a question may pass through."""
    compact_after: int = 1_000
    """After how many messages the conversation of two teams is summarised."""
    view_agents: frozenset[str] = frozenset({BUILTIN_AGENT})
    """The agents that can work on a view of a project."""

    def may_control(self, who: Who) -> bool:
        """Tell whether a person may answer asks and use control words: the local user, or an operator of their channel."""
        return who.channel in HOUSE_CHANNELS or who.name in self.operators.get(who.channel, frozenset())

    def require_operator(self, who: Who, not_allowed: str = "") -> None:
        """Refuse a person who may only talk."""
        if not self.may_control(who):
            raise NotAllowed(f"`{who.name}` is not an operator of `{who.channel}`{not_allowed and f' and may not {not_allowed}'}")

    def of(self, *, team: str = "", job: str = "", hook: str = "") -> "Rules":
        """Return the rules of a session of a team, a job or a webhook; a session never belongs to two of these."""
        if not team and not job and not hook:
            return self
        owner: RuleOwner = ("team", team) if team else ("job", job) if job else ("webhook", hook)
        policy = self.own_policies.get(owner)
        if policy is None and self.known is not None and owner not in self.known:
            # We no longer know whether it had its own rules; without them its sessions would be freer than before.
            policy = _gone(self.policy, owner)
        return self if policy is None else replace(self, policy=policy)

    def of_session(self, opened: SessionOpened | None) -> "Rules":
        """Return the rules of a session according to how it was opened, however long ago."""
        return self if opened is None else self.of(team=opened.team, job=opened.job, hook=opened.hook)

    def with_project_grants(self, grants: Mapping[GrantId, Grant]) -> "Rules":
        """Return the rules of a session in a project with these grants."""
        return self if not grants and not self.project_grants else replace(self, project_grants=grants)


class ActiveRules:
    """The rules in force. They are only replaced as a whole, so each decision uses exactly one version."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def __call__(self) -> Rules:
        """Return the rules in force."""
        return self._rules

    def take(self, rules: Rules) -> None:
        """Use these rules for every decision from now on."""
        self._rules = rules


@dataclass(frozen=True)
class SessionRules:
    """The rules of one session, the same for all decisions made together, and loaded when the first of these needs them."""

    in_force: Callable[[], Rules]
    opened: SessionOpened | None
    grants: Mapping[GrantId, Grant]
    """The grants of the session's project."""

    @cached_property
    def now(self) -> Rules:
        """Return the rules."""
        return self.in_force().of_session(self.opened).with_project_grants(self.grants)


def table_of(owner: RuleOwner) -> str:
    """Return the configuration table of a team, job or webhook."""
    kind, name = owner
    return f"{_TABLES[kind]}.{name}"


def _gone(policy: "Policy", owner: RuleOwner) -> "Policy":
    kind, name = owner
    gone = f"{kind} `{name}` is not in the configuration any more, nor are the rules it may have had"
    words = f"{gone}; put `{table_of(owner)}` back, or begin a new session"
    return judging.closed(policy, RuleId(f"{kind}-gone"), words)
