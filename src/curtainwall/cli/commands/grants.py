"""`curtainwall grants`: list standing answers, with who gave them and when, and revoke them."""

from typing import Annotated

import typer

from curtainwall.cli import loop
from curtainwall.cli.read_only import open_for_reading
from curtainwall.cli.screen import Misuse, Output, OutputOption, columns, hint, note, show, show_json, timestamp
from curtainwall.compose.store import open_store
from curtainwall.host.home import find_home
from curtainwall.host.user import local_user, when
from curtainwall.model import (
    ALL_GRANTS,
    GrantRow,
    GrantScope,
    RevokeGrant,
    in_order,
    session_stream,
)
from curtainwall.operations.lookup import find_grant, find_session

app = typer.Typer()


@app.command("list")
def list_grants(
    everything: Annotated[bool, typer.Option("--all", help="revoked and used ones as well")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the answers that stand in every session and project."""
    with open_for_reading(find_home()) as store:
        rows = store.index.grants(all_of_them=everything)
    if output is Output.JSON:
        show_json([_as_json(row) for row in rows])
        return
    if not rows:
        hint("no answer stands")
        return
    until = ("until",) if everything else ()
    lines = [
        (row.grant.id, _reach(row), row.stream.partition(":")[2], str(row.grant.by), when(row.grant.at),
         *(_until(row) for _ in until), f"{cover.role} {in_order(cover.value)}")
        for row in rows
        for cover in row.grant.covers
    ]  # fmt: skip
    show(columns(("grant", "for", "where", "by", "since", *until, "covers"), lines))
    for row in rows:
        if row.grant.lapsed and row.revoked is None:
            note(f"{row.grant.id} no longer answers: {row.grant.lapsed}; `curtainwall grants revoke {row.grant.id}` removes it")


@app.command()
def revoke(
    grant: Annotated[str | None, typer.Argument(metavar="[ID]", help="a grant or a plan, or the beginning of its id")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="instead: every grant of this session, but not of its project")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Take an answer back, with a plan's id all that are left of it; calls that are asked from now on ask again."""
    # Start-up time: listings need none of this.
    from curtainwall.compose.sessions import open_sessions
    from curtainwall.compose.setup import ActiveSetup, load_setup

    if (grant is None) == (session is None):
        raise Misuse("name one grant, or a session with --session")
    setup = load_setup()
    with open_store(setup.home) as store:
        if session is None:
            owner, ids = None, [find_grant(store.index, grant or "")]
        else:
            owner = find_session(store.index, session).session
            ids = [row.grant.id for row in store.index.grants(of=session_stream(owner))]

    async def take_back() -> None:
        async with open_sessions(setup.home, ActiveSetup(setup).terms) as sessions:
            if owner is None:
                await sessions.registry.revoke(ids[0], local_user())
            elif ids:
                await sessions.registry.send(owner, RevokeGrant(by=local_user(), grant=ALL_GRANTS))

    loop.run(take_back())
    if output is Output.JSON:
        show_json({"grant": ids[0], "revoked": True} if owner is None else {"session": owner, "revoked": ids})
        return
    for each in ids:
        show(f"revoked {each}")
    if not ids:
        note("no answer stands in this session")


def _until(row: GrantRow) -> str:
    return when(row.revoked) if row.revoked is not None else "no longer answers" if row.grant.lapsed else "stands"


def _reach(row: GrantRow) -> str:
    if row.grant.lapsed:
        return f"{row.grant.scope}, no longer answers"
    if row.grant.plan is not None:
        return f"{row.grant.scope}, of plan {row.grant.plan}"
    is_for_one = row.grant.digest is not None and row.grant.scope is not GrantScope.ONCE
    return f"{row.grant.scope}, one call" if is_for_one else row.grant.scope.value


def _as_json(row: GrantRow) -> dict[str, object]:
    return {
        "id": row.grant.id,
        "scope": row.grant.scope.value,
        "plan": row.grant.plan,
        "digest": row.grant.digest,
        "lapsed": row.grant.lapsed or None,
        "stream": row.stream,
        "by": str(row.grant.by),
        "at": timestamp(row.grant.at),
        "revoked": timestamp(row.revoked),
        "covers": [{"role": cover.role.value, "value": cover.value, "rules": list(cover.rules)} for cover in row.grant.covers],
    }
