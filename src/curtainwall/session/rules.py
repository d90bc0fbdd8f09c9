"""What a decision stands on besides the log: policy, standing project grants, operators and limits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from curtainwall import policy as judging
from curtainwall.model import HOUSE_CHANNELS, Grant, GrantId, Millis, NotAllowed, RuleId, SessionOpened, Who
from curtainwall.session.limits import BreakerLimits

if TYPE_CHECKING:
    # Start-up time: whoever only answers or lists judges nothing.
    from curtainwall.policy import Policy

Whose = tuple[Literal["team", "job", "webhook"], str]
"""Who has rules besides the house's: a team, a job or a webhook, by its name."""

_TABLES: Final = {"team": "teams", "job": "cron", "webhook": "webhooks.hooks"}


@dataclass(frozen=True, slots=True)
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
    """Who may ask a team, where not everybody may."""
    own_policies: "Mapping[Whose, Policy]" = field(default_factory=dict[Whose, "Policy"])
    """Of teams, jobs and webhooks with a rule file of their own: the house's rules, with those of that file among them."""
    known: frozenset[Whose] | None = None
    """The teams, jobs and webhooks that are configured; sessions of others may do nothing. Left out, nobody looks."""
    depth: int = 4
    """Through how many teams a question may go."""
    compact_after: int = 1_000
    """After how many messages the talk of two teams becomes a summary."""

    def may_control(self, who: Who) -> bool:
        """Tell whether someone may answer asks and use control words: the local user, or an operator of their channel."""
        return who.channel in HOUSE_CHANNELS or who.name in self.operators.get(who.channel, frozenset())

    def require_operator(self, who: Who, not_allowed: str = "") -> None:
        """Refuse somebody who may only talk."""
        if not self.may_control(who):
            raise NotAllowed(f"`{who.name}` is not an operator of `{who.channel}`{not_allowed and f' and may not {not_allowed}'}")

    def of(self, *, team: str = "", job: str = "", hook: str = "") -> "Rules":
        """Return the rules of a session that speaks for a team, is a firing of a job, or a delivery to a webhook; none is two of them."""
        if not team and not job and not hook:
            return self
        whose: Whose = ("team", team) if team else ("job", job) if job else ("webhook", hook)
        policy = self.own_policies.get(whose)
        if policy is None and self.known is not None and whose not in self.known:
            # Whether it had rules of its own is not known any more; without them its sessions would be freer than before.
            policy = _gone(self.policy, whose)
        return self if policy is None else replace(self, policy=policy)

    def of_session(self, opened: SessionOpened | None) -> "Rules":
        """Return the rules of a session by how it was opened, also where that was long ago."""
        return self if opened is None else self.of(team=opened.team, job=opened.job, hook=opened.hook)

    def with_project_grants(self, grants: Mapping[GrantId, Grant]) -> "Rules":
        """Return the rules of a session that works in a project with these grants."""
        return self if not grants and not self.project_grants else replace(self, project_grants=grants)


class ActiveRules:
    """The rules in force, until others take their place as a whole; each decision is made by one of them."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def __call__(self) -> Rules:
        """Return the rules in force."""
        return self._rules

    def take(self, rules: Rules) -> None:
        """Let every decision from now on be made by these rules."""
        self._rules = rules


@dataclass(frozen=True)
class SessionRules:
    """The rules of one session, the same for all decisions that are made together; nothing is loaded before one of them needs it."""

    in_force: Callable[[], Rules]
    opened: SessionOpened | None
    grants: Mapping[GrantId, Grant]
    """What was granted in the project in which the session works."""

    @cached_property
    def now(self) -> Rules:
        """Return the rules."""
        return self.in_force().of_session(self.opened).with_project_grants(self.grants)


def table_of(whose: Whose) -> str:
    """Return the table of the configuration that a team, job or webhook is."""
    kind, name = whose
    return f"{_TABLES[kind]}.{name}"


def _gone(policy: "Policy", whose: Whose) -> "Policy":
    kind, name = whose
    gone = f"{kind} `{name}` is not in the configuration any more, nor are the rules it may have had"
    words = f"{gone}; put `{table_of(whose)}` back, or begin a new session"
    return judging.closed(policy, RuleId(f"{kind}-gone"), words)
