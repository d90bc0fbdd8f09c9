"""Asks as the command line tells of them: which are identical, joined as on every channel, how one was settled, and what it covers."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from curtainwall.channels.asks.answers import Key, up_to
from curtainwall.channels.asks.cards import card_rows
from curtainwall.channels.series import series_at
from curtainwall.cli.screen import room
from curtainwall.host.user import when
from curtainwall.model import ApprovalQuery, ApprovalRow, session_stream
from curtainwall.runtime import Stores
from curtainwall.session import fold, inert, lift, visible

if TYPE_CHECKING:
    from curtainwall.channels.asks.board import Card

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="the approval, as its card and `approvals list` name it")]
SessionOption = Annotated[str | None, typer.Option(help="the session, where two have used the same id")]


def open_joined(store: Stores) -> Mapping[Key, tuple[Key, ...]]:
    """Return for each open ask of the house with which others are identical all of them, the oldest first."""
    return _joined(store, reversed(store.index.approvals(ApprovalQuery(limit=None, brief=True))))


def answered_with(row: ApprovalRow, joined: Mapping[Key, tuple[Key, ...]]) -> tuple[Key, ...]:
    """Return the asks that an answer to one is for, itself the last: those that come later have been shown to nobody."""
    return up_to(joined.get(key_of(row), (key_of(row),)), row.approval)


def key_of(row: ApprovalRow) -> Key:
    """Return what names an ask."""
    return row.session, row.approval


def settled_words(row: ApprovalRow) -> str:
    """Return how an ask was settled that is not open any more."""
    assert row.settled is not None
    why = f" ({inert(row.reason)})" if row.reason else ""
    match row.status:
        case "granted" | "denied":
            return f"already answered by `{row.settled_by}`: {row.status} at {when(row.settled)}{why}"
        case _:
            how = "expired" if row.status == "expired" else "was withdrawn"
            return f"too late: approval `{row.approval}` {how} at {when(row.settled)}{why}"


def covers_json(row: ApprovalRow) -> list[dict[str, object]]:
    """Return for other programs what an answer covers."""
    return [{"role": cover.role.value, "value": cover.value, "rules": list(cover.rules)} for cover in row.covers]


def _joined(store: Stores, rows: Iterable[ApprovalRow]) -> Mapping[Key, tuple[Key, ...]]:
    likely: dict[object, list[ApprovalRow]] = {}
    for row in rows:
        series = series_at(store.index.routes_to(row.session))
        if series is not None:
            # INVARIANT: coarser than what makes asks identical, so whatever stands alone here is identical with nothing.
            likely.setdefault((series, row.tool, row.digest), []).append(row)
    if all(len(alike) == 1 for alike in likely.values()):
        return {}
    # Start-up time: asks are seldom identical.
    from curtainwall.channels.asks.board import join_cards

    cards = (_card(store, row) for alike in likely.values() if len(alike) > 1 for row in alike)
    joined = (card.joined for card in join_cards(card for card in cards if card is not None))
    return {key: keys for keys in joined if len(keys) > 1 for key in keys}


def _card(store: Stores, row: ApprovalRow) -> "Card | None":
    # Start-up time: asks are seldom identical.
    from curtainwall.channels.asks.board import card_of
    from curtainwall.operations.desk import session_view

    state = fold(lift(entry) for entry in store.log.read(session_stream(row.session)))
    view = None if state.opened is None else session_view(state, (), None)
    ask = None if view is None else next((it for it in view.pending if it.approval == row.approval), None)
    return None if view is None or ask is None else card_of(ask, view, store.index.routes_to(row.session), lambda _: "")


def card(shown: str, indent: int = 0) -> str:
    """Return what a human is shown of an approval, line by line inert; it was cut when it was made and is not cut again."""
    return card_text(map(visible, shown.split("\n")), indent)


def card_text(lines: Iterable[str], indent: int = 0) -> str:
    """Return the lines of a card so far to the right, in rows that do not pass for lines of their own where a terminal is narrow."""
    most = room()
    return "\n".join(f"{' ' * indent}{row}" for row in card_rows(lines, None if most is None else most - indent))
