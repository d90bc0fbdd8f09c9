"""Which rules hold in a session right now, as people see them."""

from dataclasses import dataclass
from typing import Literal

from curtainwall.policy import Policy, RuleCard
from curtainwall.session.state import SessionState


@dataclass(frozen=True, slots=True)
class RuleInForce:
    """One rule and whether its asks count as answered here."""

    rule: RuleCard
    status: Literal["active", "disabled"]


def rules_in_force(state: SessionState, policy: Policy) -> tuple[RuleInForce, ...]:
    """Return every rule with its status in this session."""
    return tuple(RuleInForce(rule, "disabled" if rule.id in state.disabled else "active") for rule in policy.rules)
