"""`curtainwall sessions`: list and show sessions, and change them from outside."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from curtainwall.channels.plain import counted
from curtainwall.cli import loop
from curtainwall.cli.commands.session_changes import changes, diff, redo, undo
from curtainwall.cli.commands.session_exec import exec_in
from curtainwall.cli.read_only import open_for_reading
from curtainwall.cli.screen import Misuse, Output, OutputOption, columns, hanging, hint, note, show, show_json, timestamp
from curtainwall.cli.session_removal import ago, clean, delete
from curtainwall.compose.store import open_store
from curtainwall.host.home import find_home
from curtainwall.host.user import local_user, when
from curtainwall.model import (
    MCP,
    OUTSIDE,
    TEAMS,
    AnyEvent,
    BudgetKind,
    CloseSession,
    CommandRefused,
    RaiseBudget,
    RenameSession,
    RequestsRefused,
    SessionQuery,
    SessionRow,
    SessionStatus,
    ToolUsesReported,
    VerdictReport,
    session_stream,
)
from curtainwall.operations.lookup import find_session, is_stopped
from curtainwall.session import Figure, figures, fold, inert, lift

if TYPE_CHECKING:
    from curtainwall.operations.held import HeldEntry


def held(
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="only of this session; its id, or the beginning of it")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List files that were set aside in projects, because they run by themselves and came while an agent worked."""
    # Start-up time: listings need none of this.
    from curtainwall.operations.held import still_held

    with open_for_reading(find_home()) as store:
        rows = None if session is None else [find_session(store.index, session)]
        entries = [*still_held(store, rows)]
    if output is Output.JSON:
        show_json([_held_json(it) for it in entries])
    elif entries:
        show(columns(("file", "now", "session", "since"), [(it.file.path, it.file.aside, it.session, when(it.at)) for it in entries]))
        hint(
            f"{counted(len(entries), 'file')} set aside: look at each, an agent may have written it; "
            "`curtainwall sessions restore FILE` puts one back"
        )
    else:
        hint("nothing is set aside")


def restore(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="a file that was set aside, by its old name or the one it has now")],
) -> None:
    """Put back files that were set aside while an agent worked; those that changed since stay where they are."""
    # Start-up time: listings need none of this.
    from curtainwall.operations.held import restore as put_back

    with open_for_reading(find_home()) as store:
        for path in files:
            file, instead = put_back(store, path)
            remark = f"; what was there instead is `{instead}` now" if instead is not None else ""
            note(f"`{file.path}` is back{remark}")


def _held_json(entry: "HeldEntry") -> dict[str, object]:
    file = entry.file
    return {"path": file.path, "aside": file.aside, "replaced": file.is_replaced, "session": entry.session, "at": timestamp(entry.at)}


app = typer.Typer()

_ENDED = {"failed": "failed", "interrupted": "was interrupted"}
# A session whose last turn failed or was interrupted is also ready, so both words find it.
_STATUSES = (*get_args(SessionStatus), *_ENDED)
IdArgument = Annotated[str, typer.Argument(metavar="SESSION", help="its id, or the beginning of it")]


@app.command("list")
def list_sessions(
    status: Annotated[str | None, typer.Option(help=f"{', '.join(_STATUSES[:-1])} or {_STATUSES[-1]}")] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="with this agent")] = None,
    channel: Annotated[str | None, typer.Option(help="born on this channel")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="changed within this time, as 2h or 7d")] = None,
    text: Annotated[str | None, typer.Option(help="with this in name or workspace")] = None,
    callers: Annotated[bool, typer.Option("--callers", help="also those that only stand for somebody who asks teams")] = False,
    limit: Annotated[int, typer.Option(min=1, help="how many at most")] = 50,
    output: OutputOption = Output.TEXT,
) -> None:
    """List sessions; those in which something happened last come first."""
    if status is not None and status not in _STATUSES:
        raise Misuse(f"`{status}` is no status; there are {', '.join(_STATUSES)}")
    query = SessionQuery(
        status=cast("SessionStatus | None", status),
        agent=agent,
        channel=channel,
        since=ago(since) if since else None,
        text=text,
        without_agent=None if callers or agent == OUTSIDE or channel == MCP else OUTSIDE,
        by_activity=True,
        limit=limit,
    )
    with open_for_reading(find_home()) as store:
        rows = [row for row in store.index.sessions(query) if status not in _ENDED or row.stands == status]
        stopped = [row.session for row in rows if is_stopped(store, row)]
    if output is Output.JSON:
        show_json([_as_json(row) for row in rows])
    elif rows:
        heads = ("session", "status", "asks", "agent", "channel", "turns", "changed", "name")
        lines = [(it.session, it.stands, it.pending or "-", it.agent, it.channel, it.turns, when(it.changed), it.name) for it in rows]
        show(columns(heads, lines))
        if stopped:
            hint(f"no process works on {', '.join(stopped)} now; `curtainwall start --resume ID` goes on")
        if any(it.stands == "failed" for it in rows):
            hint("`curtainwall sessions history ID` says why a turn failed; the session takes the next message all the same")
    else:
        everything = SessionQuery(without_agent=OUTSIDE, by_activity=True, limit=limit)
        hint("there are no sessions yet" if query == everything else "there is no such session")


@app.command("show")
def show_session(session: IdArgument, output: OutputOption = Output.TEXT) -> None:
    """Show what a session is and what is open in it."""
    # Start-up time: listings need none of this.
    from curtainwall.channels.slash.lines import budget_lines
    from curtainwall.cli.conversations import conversation_json, conversation_lines
    from curtainwall.operations.desk import session_view
    from curtainwall.session import transcript

    with open_for_reading(find_home()) as store:
        row = find_session(store.index, session)
        events = [lift(entry) for entry in store.log.read(session_stream(row.session))]
        owner = store.leases.owner(session_stream(row.session))
        nobody_works = is_stopped(store, row)
    state, conversation = fold(events), transcript(events)
    budget, totals = figures(state), state.totals
    if output is Output.JSON:
        calls = [{"call": call, "tool": it.subject.tool, "standing": it.standing.value} for call, it in state.calls.items()]
        asks = [{"id": id_, "because": [rule for it in open_.asked.covers for rule in it.rules]} for id_, open_ in state.approvals.items()]
        about = {"owner": owner.pid if owner else None, "events": state.totals.events, "calls": state.totals.calls}
        refused, reported = _counts_outside_the_gate(events)
        about |= {"requests_refused": refused, "tool_uses_reported": reported}
        about |= {} if state.closed is None else {"closed": state.closed}
        opens = {"open_calls": calls, "approvals": asks, "budget": [_figure_json(it) for it in budget]}
        show_json({**_as_json(row), **about, **opens, **conversation_json(conversation, state)})
        return
    view = session_view(state, (), None)
    how = f", the last turn {_ENDED[row.stands]}" if row.stands in _ENDED else ""
    how = f"{how}: {state.closed}" if state.closed else how
    how = f"{how}, process {owner.pid}" if owner else how
    if nobody_works:
        how = f", but no process works on it now; `curtainwall start --resume {row.session}` goes on"
    lines = [
        ("session", row.session),
        ("name", row.name),
        ("status", f"{row.status}{how}"),
        ("agent", f"{row.agent}, model {row.model}"),
        ("channel", row.channel),
        ("mode", row.mode),
        ("workspace", f"{row.workspace} ({'its own' if row.own_workspace else 'a project'})"),
        ("created", when(row.created)),
        ("changed", when(row.changed)),
        ("parent", row.parent or "-"),
        ("labels", ", ".join(row.labels) or "-"),
        (
            "log",
            f"{counted(totals.events, 'event')}, {counted(totals.turns, 'turn')}, {counted(totals.calls, 'call')}, {totals.denials} denied",
        ),
        *_lines_outside_the_gate(events),
        *(line.split(maxsplit=1) for line in budget_lines(view.budget, view.exhausted)),
        *conversation_lines(conversation, state),
    ]
    show("\n".join(f"{name:<10} {hanging(inert(str(value)), 11)}" for name, value in lines))


def _counts_outside_the_gate(events: Sequence[AnyEvent]) -> tuple[int, int]:
    """Return how many requests the proxy refused, and how many uses of its own tools the agent reported."""
    refusals = [event for event in events if isinstance(event, RequestsRefused)]
    reports = [event for event in events if isinstance(event, ToolUsesReported)]
    refused = sum(event.more + sum(request.count for request in event.requests) for event in refusals)
    return refused, sum(event.more + len(event.uses) for event in reports)


def _lines_outside_the_gate(events: Sequence[AnyEvent]) -> list[tuple[str, str]]:
    refused, reported = _counts_outside_the_gate(events)
    lines: list[tuple[str, str]] = []
    if refused:
        lines.append(("refused", f"{counted(refused, 'request')} by the network proxy; `audit.jsonl` and the web list them"))
    if reported:
        lines.append(("own tools", f"{counted(reported, 'use')}, by the agent's own account"))
    return lines


@app.command()
def history(
    session: IdArgument,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="how many of the last messages")] = 20,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print what was said in a session, also before it was forked off another."""
    # Start-up time: listings need none of this.
    from curtainwall.channels.slash.lines import history_lines
    from curtainwall.cli.conversations import utterances_in

    with open_for_reading(find_home()) as store:
        messages = utterances_in(store.log, find_session(store.index, session).session)
    if output is Output.JSON:
        show_json([{"by": it.by or None, "text": it.text, "end": it.end} for it in messages[-count:]])
    elif messages:
        show("\n".join(history_lines(messages, count)))
    else:
        hint("nothing was said yet")


@app.command()
def why(
    session: IdArgument,
    about: Annotated[str, typer.Argument(metavar="[CALL]", help="a call or an approval; left out, the last call")] = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Say why a call of a session was allowed, asked for or denied, and what would change that."""
    # Start-up time: listings need none of this.
    from curtainwall.channels.slash.lines import why_lines
    from curtainwall.compose.sessions import open_sessions
    from curtainwall.compose.setup import ActiveSetup, load_setup
    from curtainwall.operations.explanations import Explanations

    with open_store(find_home()) as store:
        row = find_session(store.index, session)

    async def explained() -> VerdictReport:
        setup = load_setup()
        async with open_sessions(setup.home, ActiveSetup(setup).terms) as sessions:
            return Explanations(sessions).why(row.session, about)

    report = loop.run(explained())
    show_json(report.model_dump(mode="json")) if output is Output.JSON else show("\n".join(why_lines(report)))


@app.command()
def budget(
    session: IdArgument,
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="tokens, steps, seconds or dollars")] = None,
    amount: Annotated[str | None, typer.Argument(metavar="AMOUNT", help="how much in all, as 2m, 500, 4h or 10")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what a session has used of what it may use, or allow so much in all; `start --resume` goes on then."""
    # Start-up time: listings need none of this.
    from curtainwall.channels.slash.lines import budget_lines
    from curtainwall.compose.sessions import open_sessions
    from curtainwall.compose.setup import ActiveSetup, load_setup
    from curtainwall.operations.desk import session_view

    new_limit = _wanted(kind, amount)
    home = find_home()
    with open_store(home) as store:
        row = find_session(store.index, session)
    if new_limit is not None:

        async def send(command: RaiseBudget) -> None:
            setup = load_setup()
            async with open_sessions(setup.home, ActiveSetup(setup).terms) as sessions:
                await sessions.registry.send(row.session, command)

        loop.run(send(RaiseBudget(by=local_user(), kind=new_limit[0], limit=new_limit[1])))
    with open_store(home) as store:
        state = fold(lift(entry) for entry in store.log.read(session_stream(row.session)))
    view = session_view(state, (), None)
    if output is Output.JSON:
        show_json({"session": row.session, "budget": [_figure_json(it) for it in figures(state)], "exhausted": list(view.exhausted)})
        return
    show("\n".join(budget_lines(view.budget, view.exhausted)))
    if new_limit is not None and state.turn_waits and not view.exhausted:
        on = "`curtainwall serve`, or the next ask of the team," if row.channel == TEAMS else f"`curtainwall start --resume {row.session}`"
        hint(f"where the session is not open anywhere, {on} goes on")


def _wanted(kind: str | None, amount: str | None) -> tuple[BudgetKind, float] | None:
    # Start-up time: listings need none of this.
    from curtainwall.channels.slash import SlashUsageError, read_budget

    if kind is None:
        return None
    try:
        request = read_budget(f"{kind} {amount or ''}".strip())
    except SlashUsageError as error:
        raise Misuse(f"{error}; write `tokens 2m`, `steps 500`, `seconds 4h` or `dollars 10`") from None
    assert request.kind is not None
    return request.kind, request.limit


@app.command()
def rename(
    session: IdArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="what to call it from now on")],
    output: OutputOption = Output.TEXT,
) -> None:
    """Give a session another name."""
    # Start-up time: listings need none of this.
    from curtainwall.compose.sessions import open_sessions
    from curtainwall.compose.setup import ActiveSetup, load_setup

    setup = load_setup()
    with open_store(setup.home) as store:
        row = find_session(store.index, session)

    async def send() -> None:
        async with open_sessions(setup.home, ActiveSetup(setup).terms) as sessions:
            await sessions.registry.send(row.session, RenameSession(by=local_user(), name=name))

    loop.run(send())
    show_json({"session": row.session, "name": name}) if output is Output.JSON else show(f"{row.session} is now `{inert(name)}`")


@app.command()
def close(
    sessions: Annotated[list[str], typer.Argument(metavar="SESSION…", help="their ids, or the beginning of each")],
    reason: Annotated[str, typer.Option(help="why, for the log and for hooks")] = "",
    force: Annotated[bool, typer.Option("--force", help="also with open asks, queued messages or a turn under way")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """End sessions; their logs and workspaces stay, and the next message or `start --resume` opens them again."""
    # Start-up time: listings need none of this.
    from curtainwall.compose.gate import open_gate
    from curtainwall.compose.setup import load_setup

    setup, by = load_setup(), local_user()
    with open_store(setup.home) as store:
        rows = list({row.session: row for row in (find_session(store.index, session) for session in sessions)}.values())
    kept: dict[str, str] = {}

    async def run() -> None:
        async with open_gate(setup) as wired:
            for row in rows:
                command = CloseSession(by=by, reason=reason or f"closed by {by}", at_rest=not force)
                try:
                    await wired.registry.send(row.session, wired.incoming.masked(command))
                except CommandRefused as refusal:
                    kept[row.session] = str(refusal)
                else:
                    await wired.lifecycle.settle(row.session, wired.registry.look_at(row.session).reopened)

    loop.run(run())
    closed = [row.session for row in rows if row.session not in kept]
    if output is Output.JSON:
        show_json({"closed": closed, "kept": [{"session": session, "why": why} for session, why in kept.items()]})
    else:
        for session in closed:
            show(f"closed {session}")
        for session, why in kept.items():
            note(f"{session} stays as it is: {inert(why)}{'; --force ends it all the same' if 'not at rest' in why else ''}")
    if kept:
        raise typer.Exit(1)


@app.command()
def export(
    session: IdArgument,
    to: Annotated[Path | None, typer.Option(help="a new file, in place of stdout")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print a session's log as JSON lines, with the very bytes that were logged; with --output json as one document."""
    # Start-up time: listings need none of this.
    from curtainwall.operations.replay import export_lines

    with open_for_reading(find_home()) as store:
        row = find_session(store.index, session)
        entries = store.log.read(session_stream(row.session))
    lines = list(export_lines(entries))
    text = (
        f'{{"session":"{row.session}","entries":[{",".join(lines)}]}}\n'
        if output is Output.JSON
        else "".join(f"{line}\n" for line in lines)
    )
    if to is None:
        # The bytes that were logged, in whatever encoding other output is.
        sys.stdout.buffer.write(text.encode())
        return
    try:
        descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise CommandRefused(f"`{to}` is there already; name a new file") from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    hint(f"{counted(len(entries), 'entry', 'entries')} written to `{to}`")


@app.command()
def replay(
    session: Annotated[str, typer.Argument(metavar="SESSION|FILE", help="a session, or a file that `sessions export` wrote")],
    output: OutputOption = Output.TEXT,
) -> None:
    """Fold a log again and report every broken promise in it."""
    # Start-up time: listings need none of this.
    from curtainwall.operations.replay import replay_file, replay_session

    is_file = os.path.exists(session) or "/" in session or session.endswith(".jsonl")
    with open_for_reading(find_home()) as store:
        result = replay_file(Path(session), store.blobs) if is_file else replay_session(store, session)
    if result.torn:
        note("the last line is torn and was left out")
    if output is Output.JSON:
        violations = [{"seq": it.seq, "what": it.what} for it in result.violations]
        show_json({"entries": result.entries, "status": result.status, "torn": result.torn, "violations": violations})
    else:
        for it in result.violations:
            show(f"entry {it.seq}: {inert(it.what)}")
        broken = counted(len(result.violations), "broken promise") if result.violations else "no broken promises"
        show(f"{counted(result.entries, 'entry', 'entries')}, the session is {result.status}: {broken}")
    if result.violations:
        raise typer.Exit(1)


@app.command()
def fork(
    session: IdArgument,
    name: Annotated[str, typer.Option(help="the new session's name")] = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Open a new session that knows what this one knows: labels come along, grants do not."""
    # Start-up time: listings need none of this.
    from curtainwall.compose.sessions import open_sessions
    from curtainwall.compose.setup import ActiveSetup, load_setup
    from curtainwall.operations.fork import fork as fork_session
    from curtainwall.session import require_short_name

    require_short_name(name)
    setup = load_setup()
    with open_store(setup.home) as store:
        row = find_session(store.index, session)
        if row.own_workspace and store.leases.owner(session_stream(row.session)):
            note("the session is running; its workspace is copied as it is at this moment")

    async def run() -> None:
        async with open_sessions(setup.home, ActiveSetup(setup).terms) as sessions:
            forked = await fork_session(sessions, row.session, local_user(), name)
        if forked.copied is None:
            note(f"warning: both sessions work in the project `{inert(forked.workspace)}` from now on")
        elif forked.copied.skipped:
            note(f"{forked.copied.skipped} sockets and devices were left behind")
        if forked.mode.value != row.mode:
            note(f"mode `{row.mode}` was not taken over; the fork is in `{forked.mode}`")
        document = {"session": forked.session, "parent": row.session, "workspace": forked.workspace, "mode": forked.mode.value}
        show_json(document) if output is Output.JSON else show(forked.session)

    loop.run(run())


app.command("exec", context_settings={"ignore_unknown_options": True})(exec_in)
app.command()(changes)
app.command()(diff)
app.command()(undo)
app.command()(redo)
app.command()(held)
app.command()(restore)
app.command()(delete)
app.command()(clean)


def _figure_json(figure: Figure) -> dict[str, object]:
    return {"kind": figure.kind.value, "used": figure.used, "limit": figure.limit, "basis": figure.basis.value}


def _as_json(row: SessionRow) -> dict[str, object]:
    return {
        "id": row.session,
        "name": row.name,
        "agent": row.agent,
        "model": row.model,
        "channel": row.channel,
        "status": row.status,
        "last_turn": row.ending if row.status == "ready" and row.turns else None,
        "mode": row.mode,
        "workspace": row.workspace,
        "own_workspace": row.own_workspace,
        "created": timestamp(row.created),
        "changed": timestamp(row.changed),
        "turns": row.turns,
        "pending": row.pending,
        "labels": list(row.labels),
        "parent": row.parent,
    }
