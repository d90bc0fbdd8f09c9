"""What a session has used of its budgets: warned at most of it, parked at all of it."""

from typing import NamedTuple

from curtainwall.model import AnyEvent, Basis, BudgetExhausted, BudgetKind, BudgetWarned, Millis
from curtainwall.session.state import SessionState, Spent


class Figure(NamedTuple):
    """One budget: how much is used, of how much, and how sure that is."""

    kind: BudgetKind
    used: float
    limit: float
    basis: Basis

    @property
    def share(self) -> float:
        """Return the used part; a limit of nothing is used up."""
        return self.used / self.limit if self.limit > 0 else 1.0


def figures(state: SessionState, spent: Spent | None = None) -> tuple[Figure, ...]:
    """Return every budget of the session, as it is or as it would be with other figures; what is used elsewhere of the same counts."""
    spent, limits = (spent or state.spent).plus(state.elsewhere), state.limits
    return (
        Figure(BudgetKind.TOKENS, spent.tokens, limits.tokens, spent.tokens_basis),
        Figure(BudgetKind.STEPS, spent.steps, limits.steps, Basis.MEASURED),
        Figure(BudgetKind.SECONDS, spent.seconds, limits.seconds, Basis.MEASURED),
        Figure(BudgetKind.DOLLARS, spent.dollars, limits.dollars, spent.dollars_basis),
    )


def budget_events(state: SessionState, at: Millis, spent: Spent | None = None) -> tuple[AnyEvent, ...]:
    """Return the warnings and exhaustions that this state has not told yet, as it is or with other figures."""
    events: list[AnyEvent] = []
    warn_at = state.limits.warn_at
    for figure in figures(state, spent):
        share = figure.share
        if share >= 1 and figure.kind not in state.exhausted:
            events.append(BudgetExhausted(at=at, kind=figure.kind, used=figure.used, limit=figure.limit))
        elif share >= warn_at and figure.kind not in state.warned | state.exhausted:
            events.append(BudgetWarned(at=at, kind=figure.kind, used=figure.used, limit=figure.limit))
    return tuple(events)
