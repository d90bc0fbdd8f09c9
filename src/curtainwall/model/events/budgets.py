"""What a session has used of what it may use."""

from pydantic import NonNegativeFloat

from curtainwall.model.budgets import BudgetKind, Usage
from curtainwall.model.events.event import Event
from curtainwall.model.people import Who


class BudgetWarned(Event):
    """Most of a budget is used up."""

    kind: BudgetKind
    used: float
    limit: float


class BudgetExhausted(Event):
    """A budget is used up; the session parks."""

    kind: BudgetKind
    used: float
    limit: float


class BudgetRaised(Event):
    """Someone allowed more."""

    kind: BudgetKind
    limit: float
    by: Who


class SpendingCounted(Event):
    """What the sessions that share this one's budget have used; it counts here as well, in place of what was counted before."""

    usage: Usage


class WorkTimed(Event):
    """Seconds of work that count against the budget."""

    seconds: NonNegativeFloat


BudgetEvent = BudgetWarned | BudgetExhausted | BudgetRaised | SpendingCounted | WorkTimed
"""Budgets are used, used up and raised."""
