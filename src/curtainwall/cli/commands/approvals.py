"""`curtainwall approvals`: list and show the asks that wait for a human, and settled ones."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated

import typer

from curtainwall.channels.asks.answerers import Key, MayAnswer, answerer_words, answerers
from curtainwall.channels.asks.cards import CardLine, whole_card
from curtainwall.channels.places import origin_of
from curtainwall.cli.asks import IdArgument, SessionOption, answered_with, card, card_text, covers_json, key_of, open_joined, settled_words
from curtainwall.cli.read_only import open_for_reading
from curtainwall.cli.screen import Output, OutputOption, hanging, hint, note, paint, show, show_json, timestamp
from curtainwall.compose.approvals import served_operators
from curtainwall.compose.store import open_store
from curtainwall.config.loader import load_config
from curtainwall.host.home import find_home
from curtainwall.host.user import local_user, when
from curtainwall.model import (
    ApprovalQuery,
    ApprovalRow,
    Broken,
    Index,
    record,
    session_stream,
)
from curtainwall.operations.activity import SessionActivity
from curtainwall.operations.lookup import find_approval, find_session
from curtainwall.session import inert, lift

app = typer.Typer()

_MOST_NAMED = 5
_MOST_EVER = 1_000


@app.callback()
def _group() -> None:
    """Keep `list` a word of its own."""


@app.command("list")
def list_approvals(
    session: Annotated[str | None, typer.Option(help="of this session alone")] = None,
    everything: Annotated[bool, typer.Option("--all", help="settled ones as well")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help=f"how many at most; left out, every open one, and with --all the newest {_MOST_EVER}")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List what waits for an answer, newest first, each with exactly what would be granted; identical asks of one job are one.

    As JSON each ask is a row of its own, and `identical` names the older ones that an answer to it answers as well.
    """
    with open_for_reading(find_home()) as store:
        only = find_session(store.index, session).session if session else None
        query = ApprovalQuery(session=only, open_only=not everything, limit=limit or (_MOST_EVER if everything else None))
        rows = store.index.approvals(query)
        left_out = len(store.index.approvals(replace(query, limit=None, brief=True))) - len(rows) if len(rows) == query.limit else 0
        origins = {row.session: origin_of(store.index.routes_to(row.session)) for row in rows}
        joined = open_joined(store)
        may = _may_answer(store.index)
    if left_out > 0:
        note(f"{left_out} older ones are not listed; `--limit {len(rows) + left_out}` lists them all")
    if output is Output.JSON:
        show_json(
            [
                {**_as_json(row), "origin": origins[row.session], "identical": _others(row, joined), "may_answer": may.as_json(row)}
                for row in rows
            ]
        )
        return
    for row in rows:
        identical = joined.get(key_of(row), ())
        if only is None and identical and identical[-1] != key_of(row):
            continue
        answered = answered_with(row, joined)
        state = row.status if row.settled is None else f"{row.status} by {row.settled_by} at {when(row.settled)}"
        until = f", until {when(row.deadline)}" if row.deadline and row.settled is None else ""
        tag = f"  [{inert(origins[row.session])}]" if origins[row.session] else ""
        times = f", {len(answered)} times" if len(answered) > 1 else ""
        about = f"{inert(state)}  session {row.session}{tag}  asked {when(row.asked)}{times}{until}"
        show(f"{paint(row.approval, 'bold')}  {hanging(about, len(row.approval) + 2)}")
        show(card(row.shown, 2))
        if CardLine("head", row.shown).is_cut:
            show(f"  `curtainwall approvals show {row.approval}` shows all of it")
        if words := may.words(row):
            show(f"  {hanging(words, 2)}")
        if len(answered) > 1:
            others = [f"{ask} in session {of}" for of, ask in answered[:-1]]
            more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
            show(f"  the same was asked before by {', '.join(others[:_MOST_NAMED])}{more}")
            show(f"  `curtainwall approve {row.approval}` and `deny {row.approval}` answer these {len(answered)}, and with --only this one")
    if not rows:
        hint("nothing waits for an answer" if not everything else "nothing was ever asked")


@app.command("show")
def show_approval(approval: IdArgument, session: SessionOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show an ask: exactly what its answer is about and, while it is open, in full whatever that leaves out."""
    with open_store(find_home()) as store:
        row = find_approval(store.index, approval, session)
        activity = SessionActivity()
        for entry in store.log.read(session_stream(row.session)):
            activity.take(lift(entry))
        may = _may_answer(store.index)
        origin, joined = origin_of(store.index.routes_to(row.session)), open_joined(store)
    ask = activity.asks.get(row.approval)
    if output is Output.JSON:
        full_text = "\n".join(line.text for line in whole_card(ask)) if ask else row.shown
        show_json(
            {**_as_json(row), "origin": origin, "identical": _others(row, joined), "may_answer": may.as_json(row), "whole": full_text}
        )
        return
    show(card_text(line.text for line in whole_card(ask)) if ask else card(row.shown))
    if words := may.words(row):
        show(words)
    if row.settled is not None:
        note(f"{row.approval} {settled_words(row)}")


@record
class _MayAnswer:
    """Who may answer open asks; unknown if the configuration cannot be read."""

    own: str
    of: Callable[[Key], MayAnswer] | None

    def words(self, row: ApprovalRow) -> str:
        """Return a description for people; empty if there is nothing to say."""
        return "" if self.of is None or row.settled is not None else answerer_words(self.of(key_of(row)), self.own)

    def as_json(self, row: ApprovalRow) -> dict[str, list[str]] | None:
        """Return the names by channel for programs; empty for a settled ask."""
        if row.settled is not None:
            return {}
        return None if self.of is None else {"local": [self.own], **{name: list(people) for name, people in self.of(key_of(row)).items()}}


def _may_answer(index: Index) -> _MayAnswer:
    try:
        operators = served_operators(load_config(find_home().config))
    except Broken as fault:
        note(f"who may answer is not known: {fault}")
        return _MayAnswer(local_user().name, None)
    return _MayAnswer(local_user().name, answerers(index, operators))


def _others(row: ApprovalRow, joined: Mapping[Key, tuple[Key, ...]]) -> list[dict[str, str]]:
    return [{"id": ask, "session": of} for of, ask in answered_with(row, joined)[:-1]]


def _as_json(row: ApprovalRow) -> dict[str, object]:
    return {
        "id": row.approval,
        "session": row.session,
        "tool": row.tool,
        "status": row.status,
        "asked": timestamp(row.asked),
        "deadline": timestamp(row.deadline),
        "settled": timestamp(row.settled),
        "settled_by": row.settled_by or None,
        "reason": row.reason,
        "covers": covers_json(row),
        "shown": row.shown,
    }
