"""The limits of a session: the breaker for repeated subjects and too many asks, and the budgets."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from curtainwall.model import (
    AnyEvent,
    Basis,
    BudgetExhausted,
    BudgetKind,
    BudgetWarned,
    Digest,
    Millis,
    record,
)
from curtainwall.session.state import SessionState, Spent

DIGESTS_KEPT = 128
ASKS_KEPT = 128
_TIMES_KEPT = 64

K = TypeVar("K")
V = TypeVar("V")


@record
class BreakerLimits:
    """The thresholds of the breaker."""

    repeats: int = 20
    asks: int = 30
    window: Millis = 60_000


def count_repeats(repeats: Mapping[Digest, tuple[Millis, ...]], digest: Digest, now: Millis, limits: BreakerLimits) -> int:
    """Return how often the subject was requested within the window."""
    return _count(repeats.get(digest, ()), now, limits)


def count_asks(asks: Sequence[Millis], now: Millis, limits: BreakerLimits) -> int:
    """Return how many asks there were within the window."""
    return _count(asks, now, limits)


def _count(times: Sequence[Millis], now: Millis, limits: BreakerLimits) -> int:
    """Return how many of these times are near. Times from before the clock was set back are later than now, and do not count."""
    return sum(1 for at in times if abs(now - at) < limits.window)


def remember_repeat(repeats: Mapping[Digest, tuple[Millis, ...]], digest: Digest, at: Millis) -> Mapping[Digest, tuple[Millis, ...]]:
    """Return the subjects with effects plus one more; only the newest are kept, so that memory stays bounded."""
    held = dict(repeats)
    times = held.pop(digest, ())
    held[digest] = (*times[-_TIMES_KEPT:], at)
    return newest(held, DIGESTS_KEPT)


def remember_ask(asks: tuple[Millis, ...], at: Millis) -> tuple[Millis, ...]:
    """Return the asks plus one more."""
    return (*asks[1 - ASKS_KEPT :], at)


def newest(held: Mapping[K, V], kept: int) -> Mapping[K, V]:
    """Return only the newest, once there are twice as many: cutting one at a time would cost more than it saves."""
    return held if len(held) < 2 * kept else dict(islice(held.items(), len(held) - kept, None))


class Figure(NamedTuple):
    """One budget: how much is used, the limit, and how certain the figure is."""

    kind: BudgetKind
    used: float
    limit: float
    basis: Basis

    @property
    def share(self) -> float:
        """Return the used share; a limit of zero is used up."""
        return self.used / self.limit if self.limit > 0 else 1.0


def figures(state: SessionState, spent: Spent | None = None) -> tuple[Figure, ...]:
    """Return every budget of the session, with its own figures or others; usage of the same budget elsewhere counts."""
    spent, limits = (spent or state.spent).plus(state.elsewhere), state.limits
    return (
        Figure(BudgetKind.TOKENS, spent.tokens, limits.tokens, spent.tokens_basis),
        Figure(BudgetKind.STEPS, spent.steps, limits.steps, Basis.MEASURED),
        Figure(BudgetKind.SECONDS, spent.seconds, limits.seconds, Basis.MEASURED),
        Figure(BudgetKind.DOLLARS, spent.dollars, limits.dollars, spent.dollars_basis),
    )


def budget_events(state: SessionState, at: Millis, spent: Spent | None = None) -> tuple[AnyEvent, ...]:
    """Return the warnings and exhaustions that were not recorded yet, with the state's figures or others."""
    events: list[AnyEvent] = []
    warn_at = state.limits.warn_at
    for figure in figures(state, spent):
        share = figure.share
        if share >= 1 and figure.kind not in state.exhausted:
            events.append(BudgetExhausted(at=at, kind=figure.kind, used=figure.used, limit=figure.limit))
        elif share >= warn_at and figure.kind not in state.warned | state.exhausted:
            events.append(BudgetWarned(at=at, kind=figure.kind, used=figure.used, limit=figure.limit))
    return tuple(events)
