"""`curtainwall audit`: verify, repair and follow the log, and print its heads to keep elsewhere."""

import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.channels.plain import counted
from curtainwall.cli import loop
from curtainwall.cli.read_only import open_for_reading
from curtainwall.cli.screen import Misuse, Output, OutputOption, YesOption, confirm, hint, json_line, note, show, show_json
from curtainwall.compose.store import open_store
from curtainwall.host.files.tail import has_reader, last_lines, lines_as_they_come
from curtainwall.host.home import find_home
from curtainwall.host.user import when
from curtainwall.model import (
    HOUSE,
    SYSTEM,
    AddLabels,
    Broken,
    CommandRefused,
    CurtainwallError,
    ExtensionNoted,
    InterruptTurn,
    Label,
    LabelSource,
    NotFound,
    SessionId,
    SessionQuery,
    session_of,
    session_stream,
)
from curtainwall.operations.lookup import find_session
from curtainwall.operations.replay import blob_fault
from curtainwall.runtime import SystemClock
from curtainwall.session import lift
from curtainwall.store import LOSS, RESCUE, Head, Loss, Rescued, SqliteStore, accept_loss, loss_of_database, parse_head, rescue

app = typer.Typer()

_EVERY_SESSION = 1_000_000_000
_UNKNOWN = tuple(
    LabelSource(label=Label(name), origin="the loss of a part of its log, after which nobody knows what it touched")
    for name in ("sensitive", "untrusted-content")
)


@contextmanager
def _store(*, only_look: bool = True) -> Generator[SqliteStore]:
    home = find_home()
    if not home.database.exists():
        raise NotFound(f"there is no log in `{home.root}` yet; it begins with the first session")
    with open_for_reading(home, only_if_whole=False) if only_look else open_store(home) as store:
        assert isinstance(store, SqliteStore)
        yield store


@app.command()
def verify(
    session: Annotated[str | None, typer.Option(help="this session alone")] = None,
    against: Annotated[Path | None, typer.Option(help="heads that were kept elsewhere, as `audit head` printed them")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check every entry of the log and every line of `audit.jsonl`; name the first that is wrong."""
    heads = _heads_in(against) if against else ()
    if session is None and _is_new():
        # Kept heads, audit files, or the record of the last commit show that there once was a log.
        loss = loss_of_database(find_home().root)
        wrong = str(loss) if loss is not None else "the log is gone: heads of it were kept" if heads else None
        if output is Output.JSON:
            show_json({"ok": wrong is None, "entries": 0, "sessions": 0, "fault": wrong})
        else:
            show(f"wrong: {wrong}" if wrong else f"ok: there is no log in `{find_home().root}` yet, so there is nothing to verify")
            if wrong is not None and loss is None:
                note(_next_step(None))
        raise typer.Exit(0 if wrong is None else 1)
    with _store() as store:
        only = find_session(store.index, session).session if session else None
        # A list may lack a session, but the heads are sealed.
        sessions = [only] if only else [id_ for it in store.heads() if (id_ := session_of(it.stream)) is not None]
        fault = store.verify(session_stream(only) if only else None, heads)
        missing = sorted(_audited() - {*sessions} - store.deleted()) if only is None and fault is None else []
        file_faults = [(each, error) for each in sessions if fault is None and (error := store.verify_audit(each)) is not None]
        entries = sum(head.seq for head in store.heads() if only is None or head.stream == session_stream(only))
        whole = set[str]()
        blob_faults = ((each, blob_fault(store.log.read(session_stream(each)), store.blobs, whole)) for each in sessions)
        blob_error = next((f"`session:{each}` {error}" for each, error in blob_faults if error), None) if fault is None else None
        # Heads that were kept elsewhere replace the check of the seal.
        unsealed = _unsealed(store) if only is None and not heads else None
        losses = [*_lost_in_rescues(store), *_accepted_losses(store)] if only is None else []
        loss = store.loss() if only is None else None
        list_fault = store.verify_lists() if only is None and fault is None else None
    is_lost = loss is not None and loss.entries > 0
    wrong = None
    if fault is not None:
        wrong = str(fault)
    elif is_lost:
        wrong = str(loss)
    elif missing:
        wrong = f"`session:{missing[0]}`: stream missing: its `audit.jsonl` is there, and the log knows nothing of it"
    elif file_faults:
        wrong = f"`audit.jsonl` of session {file_faults[0][0]}: {file_faults[0][1]}"
    elif blob_error is not None:
        wrong = blob_error
    elif list_fault is not None:
        wrong = str(list_fault)
    elif unsealed is not None:
        wrong = f"the log: {unsealed}"
    if output is Output.JSON:
        show_json({"ok": wrong is None, "entries": entries, "sessions": len(sessions), "fault": wrong})
    elif wrong is None:
        show(f"ok: {counted(entries, 'entry', 'entries')} and {counted(len(sessions), 'audit file')} are what was written")
        if against is None:
            note("an older copy of everything would go unseen; keep `curtainwall audit head` elsewhere and use --against")
        for text in losses:
            note(text)
    else:
        show(f"wrong: {wrong}")
        if is_lost and fault is None:
            # It says itself what to do, and nothing else that is wrong matters before that.
            pass
        elif unsealed is not None and fault is None and not missing and not file_faults and blob_error is None:
            note("look at the sessions, then keep `curtainwall audit head` elsewhere and use --against, which is about those heads alone")
        elif list_fault is not None and wrong == str(list_fault):
            note("the log is what was written, and decisions are made from it alone; lists are only for looking things up")
        elif file_faults and not missing:
            note(
                "if an older copy of the database was put back, that is why: bring the newer one back; if not, the log is what was "
                "written, and `curtainwall audit rebuild` tells the file anew from it and keeps this one"
            )
        else:
            note(_next_step(missing[0] if missing else None))
    if wrong is not None:
        raise typer.Exit(1)


def _lost_in_rescues(store: SqliteStore) -> Iterator[str]:
    """Yield what was lost with damaged databases, which nothing else in the log shows."""
    for event in map(lift, store.log.read(HOUSE)):
        if isinstance(event, ExtensionNoted) and event.extension == RESCUE and (lost := event.data.get("lost")):
            names = ", ".join(map(str, lost)) if isinstance(lost, list) else str(lost)
            yield f"at {when(event.at)} the database was damaged (`{event.data.get('aside')}`) and this was lost with it: {names}"


def _accepted_losses(store: SqliteStore) -> Iterator[str]:
    """Yield the losses that somebody accepted, which nothing else in the log shows."""
    for event in map(lift, store.log.read(HOUSE)):
        if isinstance(event, ExtensionNoted) and event.extension == LOSS:
            what = "the log was gone" if event.data.get("gone") else f"{event.data.get('entries')} entries were lost"
            yield f"at {when(event.at)} {what}, and somebody accepted that"


def _unsealed(store: SqliteStore) -> str | None:
    """Return a warning about a rescue that may have missed something, or None."""
    for event in map(lift, store.log.read(HOUSE)):
        if isinstance(event, ExtensionNoted) and event.extension == RESCUE and event.data.get("sealed") is False:
            text = (
                "it was damaged and set aside, and its seal did not fit what was left, or the log of the house was lost: sessions may be "
            )
            text += "gone, or older than they were"
            return f"older copy: at {when(event.at)} {text} (`{event.data.get('aside')}`)"
    return None


def _next_step(lost: SessionId | None) -> str:
    """Return what to do about a log that is not what was written."""
    home = find_home()
    if lost is not None:
        folder = home.sessions / lost
        return (
            f"if an older copy of the database was put back, that is why: bring the newer one back, or move `{folder}` out of the home; "
            "if not, somebody took the session out of the log"
        )
    return (
        f"keep a copy of `{home.root}` as it is now, then put a backup back; "
        "where the database itself is damaged, `curtainwall audit rescue` goes on with every session in it that is whole"
    )


@app.command("rebuild")
def rebuild_(output: OutputOption = Output.TEXT) -> None:
    """Tell the lists, and every `audit.jsonl` that is wrong, anew from the log; a file that is replaced is kept beside the new one."""
    with _store(only_look=False) as store:
        fault = store.verify()
        if fault is not None:
            raise Broken(f"the log itself is not what was written, so nothing is told from it: {fault}; {_next_step(None)}")
        loop.run(store.rebuild(lift))
        ends = {id_: it.seq for it in store.heads() if (id_ := session_of(it.stream)) is not None}
        faults = {each: error for each in ends if (error := store.verify_audit(each)) is not None}
        # INVARIANT: keep complete audit lines for entries that the log lacks; they may be all that is left of those entries.
        more = [each for each, error in faults.items() if error.seq > ends[each]]
        wrong = [each for each in faults if each not in more]
        backups = {each: _kept_beside(find_home().session(each).audit) for each in wrong}
        for each in wrong:
            store.rebuild_audit(each)
    if output is Output.JSON:
        show_json({"rebuilt": wrong, "kept": [str(path) for path in backups.values() if path is not None], "left": more})
    else:
        show(f"the lists of {counted(len(ends), 'session')} and {counted(len(wrong), 'audit file')} are told anew from the log")
        for each, path in backups.items():
            note(f"{each}: its file was gone" if path is None else f"{each}: what the file said is kept as `{path}`")
    for each in more:
        path = find_home().session(each).audit
        note(
            f"`{path}` tells of more than the log does, and was left as it is: if an older copy of the database was put back, "
            "bring the newer one back; if not, move the file out of the home and do this again"
        )
    if more:
        raise typer.Exit(1)


def _kept_beside(path: Path) -> Path | None:
    """Keep a file as evidence under another name, and return that; None if there is no file."""
    if not os.path.lexists(path):
        return None
    beside = path.with_name(f"{path.name}.wrong-{SystemClock().now()}")
    path.rename(beside)
    return beside


@app.command("accept-loss")
def accept_loss_(
    yes: YesOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Go on with a log that has lost entries: what is left of it counts, turns that were under way end, and audit files are kept aside."""
    home = find_home()
    loss = loss_of_database(home.root)
    if loss is None and home.database.exists():
        with _store() as store:
            loss = store.loss()
    if loss is not None:
        if output is Output.TEXT:
            note(str(loss))
        confirm("go on without what is lost?", yes=yes)
        accept_loss(home.root, SystemClock())
    left, ended = ([], []) if loss is None else loop.run(_settled_after(loss))
    if output is Output.JSON:
        sessions = [] if loss is None else [str(each) for each in loss.sessions]
        show_json({"lost": loss is not None, "entries": loss.entries if loss else 0, "sessions": sessions, "ended": ended})
        return
    show("the log has lost nothing; nothing was changed" if loss is None else "the log goes on with what is left")
    for each in () if loss is None else loss.sessions:
        if each in left:
            note(f"{each}: its audit file told of more and is kept beside the new one; the session counts as sensitive")
        else:
            note(f"{each}: nothing of it is left in the log; its files, and what its audit file told, stay in `{home.session(each).root}`")
    for each in ended:
        note(f"{each}: its turn was ended, since what it did last is not known")
    if loss is not None:
        note("look at `curtainwall grants list`: an approval that was revoked in what is lost is back")


async def _settled_after(loss: Loss) -> tuple[list[SessionId], list[SessionId]]:
    """End the open turns, so that nothing is done twice, and label what is left of the sessions that lost entries; return both."""
    ended: list[SessionId] = []
    # Start-up time: reading the log needs no rules.
    from curtainwall.compose.sessions import open_sessions
    from curtainwall.compose.setup import ActiveSetup, load_setup

    setup = load_setup()
    async with open_sessions(setup.home, ActiveSetup(setup).terms) as sessions:
        left = [session for session in loss.sessions if sessions.store.log.head(session_stream(session))]
        assert isinstance(sessions.store, SqliteStore)
        for session in left:
            sessions.store.rebuild_audit(session)
            await sessions.registry.send(session, AddLabels(by=SYSTEM, labels=_UNKNOWN))
        for row in sessions.store.index.sessions(SessionQuery(limit=_EVERY_SESSION)):
            with suppress(CommandRefused):
                await sessions.registry.send(row.session, InterruptTurn(by=SYSTEM))
                ended.append(row.session)
    return left, ended


@app.command("rescue")
def rescue_(output: OutputOption = Output.TEXT) -> None:
    """Set a damaged database aside, which is kept, and go on with every session in it that is whole; end all other processes first."""
    rescued = rescue(find_home().root, SystemClock(), lift)
    rebuilt = [] if rescued is None else loop.run(_rebuilt(rescued))
    if output is Output.JSON:
        lost = [] if rescued is None else [str(each) for each in rescued.lost]
        show_json(
            {"damaged": rescued is not None, "aside": None if rescued is None else str(rescued.aside), "lost": lost, "rebuilt": rebuilt}
        )
    else:
        whole = "the database is whole" if find_home().database.exists() else f"there is no log in `{find_home().root}` yet"
        show(f"{whole}; nothing was changed" if rescued is None else f"{rescued}")
        for stream in () if rescued is None else rescued.lost:
            note(f"lost: {stream}")
        for line in rebuilt:
            note(line)


async def _rebuilt(rescued: Rescued) -> list[str]:
    # Start-up time: reading the log needs no gate.
    from curtainwall.compose.gate import open_gate
    from curtainwall.compose.setup import load_setup
    from curtainwall.serve.rebuild import rebuild

    try:
        async with open_gate(load_setup()) as wired:
            return [line async for line in rebuild(wired, rescued.lost)]
    except CurtainwallError as fault:
        # The rescue itself succeeded; an unreadable configuration must not hide that.
        return [f"the conversations with teams could not be put right: {fault}"]


def _is_new() -> bool:
    database = find_home().database
    return not database.exists() or database.stat().st_size == 0


def _audited() -> set[SessionId]:
    """Return the sessions with a non-empty audit file."""
    return {SessionId(path.parent.name) for path in find_home().sessions.glob("*/audit.jsonl") if path.lstat().st_size}


def _heads_in(path: Path) -> tuple[Head, ...]:
    heads: list[Head] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if line.strip():
            try:
                heads.append(parse_head(line))
            except ValueError:
                raise Misuse(f"line {number} of `{path}` is no head; give what `curtainwall audit head` printed") from None
    return tuple(heads)


@app.command()
def head(output: OutputOption = Output.TEXT) -> None:
    """Print where every stream of the log ends; kept elsewhere, it shows that an older copy was put back."""
    heads: Sequence[Head] = ()
    if _is_new():
        hint(f"there is no log in `{find_home().root}` yet, so it has no heads")
    else:
        with _store() as store:
            heads = store.heads()
    if output is Output.JSON:
        show_json([{"stream": it.stream, "seq": it.seq, "hash": it.hash.hex()} for it in heads])
    else:
        for it in heads:
            show(str(it))


@app.command()
def tail(
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="left out, the session that changed last")] = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="how many of the last lines")] = 10,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="go on with what comes")] = False,
) -> None:
    """Print the last lines of a session's `audit.jsonl`: its verdicts, approvals and outcomes, as JSON."""
    home = find_home()
    with _store() as store:
        if session is None:
            rows = sorted(store.index.sessions(SessionQuery(limit=_EVERY_SESSION)), key=lambda row: row.changed)
            if not rows:
                raise NotFound("there is no session yet")
            chosen: SessionId = rows[-1].session
        else:
            chosen = find_session(store.index, session).session
    path = home.session(chosen).audit
    text, end = last_lines(path, lines)
    for line in text:
        show(json_line(line))
    if lines and not text:
        hint(f"nothing was judged, asked or done in {chosen} yet")
    if follow:
        sys.stdout.flush()
        for line in lines_as_they_come(path, end, partial(has_reader, sys.stdout)):
            print(json_line(line), flush=True)
        # Our reader is gone; writing the next line would raise this, too.
        raise BrokenPipeError
