"""Identical asks on the command line: joined as on every channel, looking into no other session than needed, and answered together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from curtainwall.channels.asks.board import Card, Key, answer_each, card_of, join
from curtainwall.channels.places import series_at
from curtainwall.compose.gate import open_house
from curtainwall.compose.setup import Setup
from curtainwall.model import (
    AnswerApproval,
    ApprovalQuery,
    ApprovalRow,
    Cover,
    CurtainwallError,
    GrantId,
    GrantRow,
    GrantScope,
    SessionId,
    session_stream,
)
from curtainwall.operations.views import view_of
from curtainwall.runtime import Stores
from curtainwall.session import fold, lift


@dataclass(frozen=True, slots=True)
class Together:
    """What came of one answer: the asks that it was for, those that it did not settle, and the grants that stand since."""

    asks: tuple[Key, ...]
    refused: Mapping[Key, CurtainwallError]
    grants: tuple[GrantRow, ...]
    is_running: bool

    @property
    def settled(self) -> tuple[Key, ...]:
        """The asks that it settled."""
        return tuple(key for key in self.asks if key not in self.refused)

    def grant_of(self, session: SessionId) -> GrantId | None:
        """Return the grant that answers in a session from now on."""
        here = (row for row in self.grants if row.grant.scope is GrantScope.PROJECT or row.stream == session_stream(session))
        return next((row.grant.id for row in here), None)


def open_joined(store: Stores) -> Mapping[Key, tuple[Key, ...]]:
    """Return for each open ask of the house with which others are identical all of them, the oldest first."""
    return _joined(store, reversed(store.index.approvals(ApprovalQuery(limit=None, brief=True))))


async def answer_together(setup: Setup, asks: tuple[Key, ...], command: AnswerApproval, covers: Sequence[Cover]) -> Together:
    """Give one answer to several asks that cover the same."""
    async with open_house(setup) as wired:
        index = wired.store.index
        before = {found.grant.id for found in index.grants()}
        is_running = any(wired.store.leases.owner(session_stream(session)) is not None for session, _ in asks)

        async def send(session: SessionId, answer: AnswerApproval) -> int:
            return await wired.house.send(session, answer)

        refused = await answer_each(send, asks, command)
        new = tuple(found for found in index.grants() if found.grant.id not in before and found.grant.covers == covers)
        return Together(asks, refused, new, is_running)


def _joined(store: Stores, rows: Iterable[ApprovalRow]) -> Mapping[Key, tuple[Key, ...]]:
    likely: dict[object, list[ApprovalRow]] = {}
    for row in rows:
        series = series_at(store.index.routes_to(row.session))
        if series is not None:
            # INVARIANT: coarser than what makes asks identical, so whatever stands alone here is identical with nothing.
            likely.setdefault((series, row.tool, row.digest), []).append(row)
    cards = (_card(store, row) for alike in likely.values() if len(alike) > 1 for row in alike)
    joined = (card.joined for card in join(card for card in cards if card is not None))
    return {key: keys for keys in joined if len(keys) > 1 for key in keys}


def _card(store: Stores, row: ApprovalRow) -> Card | None:
    state = fold(lift(entry) for entry in store.log.read(session_stream(row.session)))
    view = None if state.opened is None else view_of(state, (), None)
    ask = None if view is None else next((it for it in view.pending if it.approval == row.approval), None)
    return None if view is None or ask is None else card_of(ask, view, store.index.routes_to(row.session), lambda _: "")
