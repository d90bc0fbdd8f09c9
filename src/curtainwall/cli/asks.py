"""Asks on the command line: which are identical, as on every channel, how one was settled, and what it covers."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from curtainwall.channels.asks.answerers import Key
from curtainwall.channels.asks.answers import up_to
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
    """Return, for each open ask that has identical ones, all of them, oldest first."""
    return _joined(store, reversed(store.index.approvals(ApprovalQuery(limit=None, brief=True))))


def answered_with(row: ApprovalRow, joined: Mapping[Key, tuple[Key, ...]]) -> tuple[Key, ...]:
    """Return the asks that an answer to this one settles, ending with itself: nobody has seen later ones yet."""
    return up_to(joined.get(key_of(row), (key_of(row),)), row.approval)


def key_of(row: ApprovalRow) -> Key:
    """Return the key of an ask."""
    return row.session, row.approval


def settled_words(row: ApprovalRow) -> str:
    """Return how a settled ask was settled."""
    assert row.settled is not None
    why = f" ({inert(row.reason)})" if row.reason else ""
    match row.status:
        case "granted" | "denied":
            return f"already answered by `{row.settled_by}`: {row.status} at {when(row.settled)}{why}"
        case _:
            how = "expired" if row.status == "expired" else "was withdrawn"
            return f"too late: approval `{row.approval}` {how} at {when(row.settled)}{why}"


def covers_json(row: ApprovalRow) -> list[dict[str, object]]:
    """Return as JSON what an answer covers."""
    return [{"role": cover.role.value, "value": cover.value, "rules": list(cover.rules)} for cover in row.covers]


def _joined(store: Stores, rows: Iterable[ApprovalRow]) -> Mapping[Key, tuple[Key, ...]]:
    candidates: dict[object, list[ApprovalRow]] = {}
    for row in rows:
        series = series_at(store.index.routes_to(row.session))
        if series is not None:
            # INVARIANT: this key is coarser than identity, so an ask that is alone here has no identical ones.
            candidates.setdefault((series, row.tool, row.digest), []).append(row)
    if all(len(identical) == 1 for identical in candidates.values()):
        return {}
    # Start-up time: asks are seldom identical.
    from curtainwall.channels.asks.board import join_cards

    cards = (_card(store, row) for identical in candidates.values() if len(identical) > 1 for row in identical)
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
    """Return an approval's card for the terminal, with each line inert; it was shortened when it was made."""
    return card_text(map(visible, shown.split("\n")), indent)


def card_text(lines: Iterable[str], indent: int = 0) -> str:
    """Return the lines of a card, indented; on a narrow terminal, folded rows cannot be mistaken for separate lines."""
    width = room()
    return "\n".join(f"{' ' * indent}{row}" for row in card_rows(lines, None if width is None else width - indent))
