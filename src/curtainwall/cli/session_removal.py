"""`curtainwall sessions delete` and `clean`: delete sessions for good, and report it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from curtainwall.channels.plain import counted
from curtainwall.cli import loop
from curtainwall.cli.screen import Misuse, Output, OutputOption, YesOption, confirm, hint, note, show, show_json
from curtainwall.compose.store import open_store
from curtainwall.host.extras import ExtraMissing
from curtainwall.host.home import find_home
from curtainwall.host.user import local_user, when
from curtainwall.model import SessionQuery, SessionRow
from curtainwall.operations.lookup import find_session
from curtainwall.runtime import SystemClock
from curtainwall.session import inert

if TYPE_CHECKING:
    from curtainwall.operations.remove import Removal

_MANY = 1_000_000_000


def ago(text: str) -> int:
    """Return the time that lies a duration before now; raise `Misuse`."""
    # Start-up time: listings need none of this.
    from curtainwall.config.fields import parse_duration

    try:
        return SystemClock().now() - parse_duration(text) * 1000
    except ValueError as error:
        raise Misuse(str(error)) from None


def delete(
    sessions: Annotated[list[str], typer.Argument(metavar="SESSION…", help="their whole ids")],
    yes: YesOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete sessions for good, with their logs and their own workspaces; never one with open approvals."""
    with open_store(find_home()) as store:
        rows = [find_session(store.index, session, whole=True) for session in dict.fromkeys(sessions)]
    _confirm_deleting(rows, yes=yes)
    _report(loop.run(_remove(rows)), output)


def clean(
    older_than: Annotated[str, typer.Option(metavar="TIME", help="without a change for this long, as 12h or 7d")] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete sessions that nobody has used for a while, and containers that nobody owns; those with open approvals stay."""
    # Start-up time: listings need none of this.
    from curtainwall.operations.remove import Removal, remove_rest

    before = ago(older_than)
    if not dry_run and (left := loop.run(_remove_leftovers())):
        hint(f"removed {left} container{'s' if left > 1 else ''} that a process of ours left behind")
    with open_store(find_home()) as store:
        if not dry_run and (left := remove_rest(store, find_home())):
            hint(f"removed the files of {counted(len(left), 'session')} whose deletion had been cut off")
            _report_aside(left)
        old = store.index.sessions(SessionQuery(before=before, limit=_MANY))
    rows = [row for row in old if not row.pending]
    kept = [Removal(row.session, f"it has {counted(row.pending, 'open approval')}") for row in old if row.pending]
    if dry_run or not rows:
        _report([*kept, *(Removal(row.session, None, f"{row.name}, changed {when(row.changed)}") for row in rows)], output, dry_run=True)
        return
    _confirm_deleting(rows, yes=yes)
    _report([*kept, *loop.run(_remove(rows))], output, kept_is_fine=True)


async def _remove(rows: Sequence[SessionRow]) -> "list[Removal]":
    # Start-up time: listings need none of this.
    from curtainwall.compose.sessions import open_sessions
    from curtainwall.compose.setup import ActiveSetup, load_setup
    from curtainwall.operations.remove import remove_sessions

    setup = load_setup()
    async with open_sessions(setup.home, ActiveSetup(setup).terms) as sessions:
        return await remove_sessions(sessions, rows, local_user())


async def _remove_leftovers() -> int | None:
    """Remove containers whose owners are dead, and return how many; None if no engine answers, or if its client is not installed."""
    # Start-up time: the engine's client takes long to load.
    try:
        from curtainwall.agents.external.container import Engine, EngineMissing, Fleet
    except ExtraMissing:
        return None

    engine = Engine()
    try:
        return await Fleet(engine).clean()
    except EngineMissing:
        return None
    finally:
        await engine.close()


def _confirm_deleting(rows: Sequence[SessionRow], *, yes: bool) -> None:
    if not yes:
        for row in rows:
            note(f"{row.session}  {inert(row.name)}, changed {when(row.changed)}")
    confirm(f"delete {counted(len(rows), 'session')} with logs and workspaces, for good?", yes=yes)


def _report_aside(removals: "Sequence[Removal]") -> None:
    for it in removals:
        if it.aside is not None:
            note(
                f"the workspace of {it.session} may belong to a session that was lost with a damaged database; it lies in `{it.aside}` now"
            )


def _report(removals: "list[Removal]", output: Output, *, dry_run: bool = False, kept_is_fine: bool = False) -> None:
    _report_aside(removals)
    gone = [removal for removal in removals if removal.why_not is None]
    kept = [removal for removal in removals if removal.why_not is not None]
    if output is Output.JSON:
        stay = [{"session": it.session, "why": it.why_not} for it in kept]
        show_json({"would_delete" if dry_run else "deleted": [it.session for it in gone], "kept": stay})
    else:
        for it in gone:
            show(f"{'would delete' if dry_run else 'deleted'} {it.session}{f' ({inert(it.about)})' if it.about else ''}")
        for it in kept:
            note(f"kept {it.session}: {inert(it.why_not or '')}")
        if not removals:
            hint("there is nothing to delete")
    if kept and not (dry_run or kept_is_fine):
        raise typer.Exit(1)
