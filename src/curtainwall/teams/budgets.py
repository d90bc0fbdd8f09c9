"""One budget for several sessions: what each of them uses, and what a human allows in one of them, counts in all."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from curtainwall.model import SYSTEM, BudgetKind, CommandRefused, CountSpending, RaiseBudget, SessionId, session_stream
from curtainwall.runtime import House
from curtainwall.session import SessionState, Spent

_SHARED = (BudgetKind.TOKENS, BudgetKind.DOLLARS)


class _Share(NamedTuple):
    """A session's part in a budget, up to where its log was read."""

    head: int
    spent: Spent
    raised: Mapping[BudgetKind, float]


class SharedBudgets:
    """What sessions have used and were allowed; each log is read once, and again when it has grown."""

    def __init__(self, house: House, state: Callable[[SessionId], SessionState]) -> None:
        self._house = house
        self._state = state
        self._shares: dict[SessionId, _Share] = {}

    async def share(self, session: SessionId, others: Iterable[SessionId]) -> None:
        """Let a session's budget be that of the others, too: count what they have used, and allow what was allowed there."""
        others = [other for other in others if other != session]
        state = self._state(session)
        for kind in _SHARED:
            limit = max((self._share(other).raised.get(kind, 0.0) for other in others), default=0.0)
            if limit > getattr(state.limits, kind):
                # It is refused where somebody has allowed as much in the meantime.
                with suppress(CommandRefused):
                    await self._house.send(session, RaiseBudget(by=SYSTEM, kind=kind, limit=limit))
        used = self._used(others)
        if used != state.elsewhere:
            await self._house.send(session, CountSpending(by=SYSTEM, usage=used.usage))

    async def settle(self, sessions: Sequence[SessionId]) -> None:
        """Count in each session that is at work what all of them used, where that is as much as it may use."""
        used = self._used(sessions)
        for session in sessions:
            state = self._state(session)
            is_at_work = state.turn is not None and not state.turn_waits and not state.exhausted
            if is_at_work and (used.tokens >= state.limits.tokens or used.dollars >= state.limits.dollars):
                await self.share(session, sessions)

    def _used(self, sessions: Iterable[SessionId]) -> Spent:
        used = Spent()
        for session in sessions:
            used = used.plus(self._share(session).spent)
        return used

    def _share(self, session: SessionId) -> _Share:
        head = self._house.feed.head(session_stream(session))
        known = self._shares.get(session)
        if known is None or known.head != head:
            known = self._shares[session] = _read(head, self._state(session))
        return known


def _read(head: int, state: SessionState) -> _Share:
    if state.opened is None:
        return _Share(head, Spent(), {})
    began = state.opened.limits
    raised = {kind: float(getattr(state.limits, kind)) for kind in _SHARED if getattr(state.limits, kind) > getattr(began, kind)}
    return _Share(head, state.spent.copy(), raised)
