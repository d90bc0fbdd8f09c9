"""`curtainwall approvals`, `approve` and `deny`: what waits for a human, and the human's answer."""

import asyncio
from typing import Annotated

import typer

from curtainwall.app.finding import find_approval, find_session
from curtainwall.app.home import find_home
from curtainwall.app.screen import Output, OutputOption, card, note, paint, show, show_json, timestamp, when
from curtainwall.app.wiring import Wired, local_user, open_house, open_store, set_up
from curtainwall.channels.places import origin_of
from curtainwall.model import (
    AlreadyAnswered,
    AnswerApproval,
    ApprovalQuery,
    ApprovalRow,
    GrantId,
    GrantScope,
    session_stream,
)
from curtainwall.runtime import PATIENCE
from curtainwall.session import inert, reach

app = typer.Typer()

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="the approval, as its card and `approvals list` name it")]
SessionOption = Annotated[str | None, typer.Option(help="the session, where two have used the same id")]


@app.callback()
def _group() -> None:
    """Keep `list` a word of its own."""


@app.command("list")
def list_approvals(
    session: Annotated[str | None, typer.Option(help="of this session alone")] = None,
    everything: Annotated[bool, typer.Option("--all", help="settled ones as well")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """List what waits for an answer, newest first, each with exactly what would be granted."""
    with open_store(find_home()) as store:
        only = find_session(store.index, session).session if session else None
        rows = store.index.approvals(ApprovalQuery(session=only, open_only=not everything))
        origins = {row.session: origin_of(store.index.routes_to(row.session)) for row in rows}
    if output is Output.JSON:
        show_json([{**_as_json(row), "origin": origins[row.session]} for row in rows])
        return
    for row in rows:
        state = row.status if row.settled is None else f"{row.status} by {row.settled_by} at {when(row.settled)}"
        until = f", until {when(row.deadline)}" if row.deadline and row.settled is None else ""
        tag = f"  [{inert(origins[row.session])}]" if origins[row.session] else ""
        show(f"{paint(row.approval, 'bold')}  {inert(state)}  session {row.session}{tag}  asked {when(row.asked)}{until}")
        show("\n".join(f"  {line}" for line in card(row.shown).splitlines()))
    if not rows:
        note("nothing waits for an answer" if not everything else "nothing was ever asked")


def approve(
    approval: IdArgument,
    scope: Annotated[
        GrantScope, typer.Option("--for", help="once, for the session, or for every session in the project")
    ] = GrantScope.ONCE,
    session: SessionOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Grant an approval: once, for the session, or for the project."""
    _settle(approval, session, granted=True, scope=scope, reason="", output=output)


def deny(
    approval: IdArgument,
    reason: Annotated[str, typer.Option(help="why, for the agent and the log")] = "",
    session: SessionOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Deny an approval."""
    _settle(approval, session, granted=False, scope=GrantScope.ONCE, reason=reason, output=output)


def _settle(approval: str, session: str | None, *, granted: bool, scope: GrantScope, reason: str, output: Output) -> None:
    setup = set_up()
    with open_store(setup.home) as store:
        row = find_approval(store.index, approval, session)
    if row.settled is not None:
        raise AlreadyAnswered(_settled_words(row))
    scope = reach(scope, row.covers)
    command = AnswerApproval(by=local_user(), approval=row.approval, granted=granted, scope=scope, reason=reason)

    async def answer() -> tuple[GrantId | None, bool]:
        async with open_house(setup) as wired:
            is_running = wired.store.leases.owner(session_stream(row.session)) is not None
            await wired.house.send(row.session, command, patience=PATIENCE)
            return _grant_of(wired, row) if granted and scope is not GrantScope.ONCE else None, is_running

    grant, is_running = asyncio.run(answer())
    if output is Output.JSON:
        told = {"approval": row.approval, "session": row.session, "status": "granted" if granted else "denied", "by": str(command.by)}
        show_json({**told, "scope": scope.value if granted else None, "grant": grant, "reason": reason, "covers": _covers(row)})
    elif granted:
        for_what = (
            "once"
            if scope is GrantScope.ONCE
            else f"for the {scope.value} (grant {grant}; `curtainwall grants revoke {grant}` takes it back)"
        )
        show(f"granted {for_what}: {inert(row.tool)}")
        show("\n".join(f"  {cover.role} {inert(cover.value)}  [{', '.join(cover.rules)}]" for cover in row.covers))
    else:
        show(f"denied: {inert(row.tool)}")
    if not is_running:
        # A process that only waits holds nothing, so whether there is one cannot be seen from here.
        note(f"where the session is not open anywhere, `curtainwall start --resume {row.session}` goes on")


def _grant_of(wired: Wired, row: ApprovalRow) -> GrantId | None:
    """Return the grant that the answer left standing: the newest with exactly what was asked."""
    return next((found.grant.id for found in wired.store.index.grants() if found.grant.covers == row.covers), None)


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
