"""`curtainwall approvals`, `approve` and `deny`: what waits for a human, and the human's answer."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from curtainwall.channels.asks.answerers import MayAnswer, answerer_words, answerers
from curtainwall.channels.asks.board import Key, up_to
from curtainwall.channels.asks.cards import CardLine, whole_card
from curtainwall.channels.places import origin_of
from curtainwall.cli.joined_asks import Together, answer_together, open_joined
from curtainwall.cli.read_only import open_to_look
from curtainwall.cli.screen import Output, OutputOption, card, card_text, hanging, note, paint, show, show_json, timestamp
from curtainwall.compose.operators import served_operators
from curtainwall.compose.setup import set_up
from curtainwall.compose.store import open_store
from curtainwall.config.loader import load_config
from curtainwall.host.account import local_user
from curtainwall.host.home import find_home
from curtainwall.host.local_time import when
from curtainwall.model import (
    AlreadyAnswered,
    AnswerApproval,
    ApprovalQuery,
    ApprovalRow,
    Broken,
    GrantScope,
    Index,
    in_order,
    session_stream,
)
from curtainwall.operations.lookup import find_approval, find_session
from curtainwall.operations.tale import Tale
from curtainwall.session import inert, lift, reach

app = typer.Typer()

_MOST_NAMED = 5
_MOST_EVER = 1_000

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="the approval, as its card and `approvals list` name it")]
OnlyOption = Annotated[bool, typer.Option("--only", help="this one alone, and not those that are identical")]
SessionOption = Annotated[str | None, typer.Option(help="the session, where two have used the same id")]


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
    with open_to_look(find_home()) as store:
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
        every = joined.get(_key(row), ())
        if only is None and every and every[-1] != _key(row):
            continue
        alike = _answered_with(row, joined)
        state = row.status if row.settled is None else f"{row.status} by {row.settled_by} at {when(row.settled)}"
        until = f", until {when(row.deadline)}" if row.deadline and row.settled is None else ""
        tag = f"  [{inert(origins[row.session])}]" if origins[row.session] else ""
        times = f", {len(alike)} times" if len(alike) > 1 else ""
        about = f"{inert(state)}  session {row.session}{tag}  asked {when(row.asked)}{times}{until}"
        show(f"{paint(row.approval, 'bold')}  {hanging(about, len(row.approval) + 2)}")
        show(card(row.shown, 2))
        if CardLine("head", row.shown).is_cut:
            show(f"  `curtainwall approvals show {row.approval}` shows all of it")
        if words := may.words(row):
            show(f"  {hanging(words, 2)}")
        if len(alike) > 1:
            others = [f"{ask} in session {of}" for of, ask in alike[:-1]]
            more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
            show(f"  the same was asked before by {', '.join(others[:_MOST_NAMED])}{more}")
            show(f"  `curtainwall approve {row.approval}` and `deny {row.approval}` answer these {len(alike)}, and with --only this one")
    if not rows:
        note("nothing waits for an answer" if not everything else "nothing was ever asked")


@app.command("show")
def show_approval(approval: IdArgument, session: SessionOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show an ask: exactly what its answer is about and, while it is open, in full whatever that leaves out."""
    with open_store(find_home()) as store:
        row = find_approval(store.index, approval, session)
        told = Tale()
        for entry in store.log.read(session_stream(row.session)):
            told.take(lift(entry))
        may = _may_answer(store.index)
        origin, joined = origin_of(store.index.routes_to(row.session)), open_joined(store)
    ask = told.asks.get(row.approval)
    if output is Output.JSON:
        whole = "\n".join(line.text for line in whole_card(ask)) if ask else row.shown
        show_json({**_as_json(row), "origin": origin, "identical": _others(row, joined), "may_answer": may.as_json(row), "whole": whole})
        return
    show(card_text(line.text for line in whole_card(ask)) if ask else card(row.shown))
    if words := may.words(row):
        show(words)
    if row.settled is not None:
        note(f"{row.approval} {_settled_words(row)}")


def approve(
    approval: IdArgument,
    scope: Annotated[
        GrantScope, typer.Option("--for", help="once, for the session, or for every session in the project")
    ] = GrantScope.ONCE,
    session: SessionOption = None,
    only: OnlyOption = False,
    output: OutputOption = Output.TEXT,
) -> int:
    """Grant an approval: once, for the session, or for the project. Identical asks of its job that came before are granted as well."""
    return _settle(_Answer(approval, session, only, granted=True, scope=scope), output)


def deny(
    approval: IdArgument,
    reason: Annotated[str, typer.Option(help="why, for the agent and the log")] = "",
    session: SessionOption = None,
    only: OnlyOption = False,
    output: OutputOption = Output.TEXT,
) -> int:
    """Deny an approval. Identical asks of its job that came before are denied as well."""
    return _settle(_Answer(approval, session, only, granted=False, reason=reason), output)


@dataclass(frozen=True, slots=True)
class _MayAnswer:
    """Who may answer open asks; nobody knows where the configuration cannot be read."""

    own: str
    of: Callable[[Key], MayAnswer] | None

    def words(self, row: ApprovalRow) -> str:
        """Return it for people, where there is something to say."""
        return "" if self.of is None or row.settled is not None else answerer_words(self.of(_key(row)), self.own)

    def as_json(self, row: ApprovalRow) -> dict[str, list[str]] | None:
        """Return it for programs: the names by their channel; of a settled one, none."""
        if row.settled is not None:
            return {}
        return None if self.of is None else {"local": [self.own], **{name: list(people) for name, people in self.of(_key(row)).items()}}


def _may_answer(index: Index) -> _MayAnswer:
    try:
        operators = served_operators(load_config(find_home().config))
    except Broken as fault:
        note(f"who may answer is not known: {fault}")
        return _MayAnswer(local_user().name, None)
    return _MayAnswer(local_user().name, answerers(index, operators))


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer as somebody wrote it."""

    approval: str
    session: str | None
    only: bool
    granted: bool
    scope: GrantScope = GrantScope.ONCE
    reason: str = ""


def _settle(said: _Answer, output: Output) -> int:
    setup = set_up()
    with open_store(setup.home) as store:
        row = find_approval(store.index, said.approval, said.session)
        if row.settled is not None:
            raise AlreadyAnswered(_settled_words(row))
        others = () if said.only else _answered_with(row, open_joined(store))[:-1]
    scope = reach(said.scope, row.covers)
    command = AnswerApproval(by=local_user(), approval=row.approval, granted=said.granted, scope=scope, reason=said.reason)
    told = asyncio.run(answer_together(setup, (_key(row), *others), command, row.covers))
    for (session, approval), why in told.refused.items():
        if len(told.asks) > 1:
            note(f"not settled by this: {approval} in session {session}: {inert(str(why))}")
    if not told.settled:
        raise told.refused[_key(row)]
    if output is Output.JSON:
        show_json(_told_json(row, command, told))
    else:
        _show(row, command, told)
    if not told.is_running:
        # A process that only waits holds nothing, so whether there is one cannot be seen from here.
        which = row.session if len(told.settled) == 1 else "SESSION"
        note(f"where the session is not open anywhere, `curtainwall start --resume {which}` goes on")
    # One that somebody else has settled meanwhile is settled as well, unless it is the one that was named.
    return 1 if any(key == _key(row) or not isinstance(why, AlreadyAnswered) for key, why in told.refused.items()) else 0


def _show(row: ApprovalRow, command: AnswerApproval, told: Together) -> None:
    if command.granted:
        grants = [str(found.grant.id) for found in told.grants]
        which = f"grant {grants[0]}; `curtainwall grants revoke {grants[0]}` takes it back" if len(grants) == 1 else ""
        which = which or f"grants {', '.join(grants)}; `curtainwall grants revoke ID` takes one back"
        how_far = f"for the {command.scope.value} ({which})" if grants else "once"
        show(f"granted {how_far}: {inert(row.tool)}")
        show("\n".join(f"  {cover.role} {inert(in_order(cover.value))}  [{', '.join(cover.rules)}]" for cover in row.covers))
    else:
        show(f"denied: {inert(row.tool)}")
    if len(told.asks) > 1:
        show(f"this answered {len(told.settled)} identical asks:")
        show("\n".join(f"  {approval}  session {session}" for session, approval in told.settled))


def _told_json(row: ApprovalRow, command: AnswerApproval, told: Together) -> dict[str, object]:
    return {
        "approval": row.approval,
        "session": row.session,
        "status": "not settled" if _key(row) in told.refused else "granted" if command.granted else "denied",
        "by": str(command.by),
        "scope": command.scope.value if command.granted else None,
        "grant": told.grant_of(row.session),
        "reason": command.reason,
        "covers": _covers(row),
        "identical": [{"id": ask, "session": of, "grant": told.grant_of(of)} for of, ask in told.settled if (of, ask) != _key(row)],
        "unsettled": [{"id": ask, "session": of, "why": str(why)} for (of, ask), why in told.refused.items()],
    }


def _others(row: ApprovalRow, joined: Mapping[Key, tuple[Key, ...]]) -> list[dict[str, str]]:
    return [{"id": ask, "session": of} for of, ask in _answered_with(row, joined)[:-1]]


def _answered_with(row: ApprovalRow, joined: Mapping[Key, tuple[Key, ...]]) -> tuple[Key, ...]:
    """Return the asks that an answer to one is for, itself the last: those that come later have been shown to nobody."""
    return up_to(joined.get(_key(row), (_key(row),)), row.approval)


def _key(row: ApprovalRow) -> Key:
    return row.session, row.approval


def _settled_words(row: ApprovalRow) -> str:
    assert row.settled is not None
    why = f" ({inert(row.reason)})" if row.reason else ""
    match row.status:
        case "granted" | "denied":
            return f"already answered by `{row.settled_by}`: {row.status} at {when(row.settled)}{why}"
        case _:
            how = "expired" if row.status == "expired" else "was withdrawn"
            return f"too late: approval `{row.approval}` {how} at {when(row.settled)}{why}"


def _covers(row: ApprovalRow) -> list[dict[str, object]]:
    return [{"role": cover.role.value, "value": cover.value, "rules": list(cover.rules)} for cover in row.covers]


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
        "covers": _covers(row),
        "shown": row.shown,
    }
