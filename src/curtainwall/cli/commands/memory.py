"""`curtainwall memory`: what agents noted for later sessions, where it came from, and taking it away."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.channels import short
from curtainwall.cli.read_only import open_to_look
from curtainwall.cli.screen import (
    Misuse,
    Output,
    OutputOption,
    YesOption,
    columns,
    confirm,
    note,
    require_directory,
    show,
    show_json,
    timestamp,
)
from curtainwall.compose.knowledge import open_notebook
from curtainwall.compose.setup import judging_masker
from curtainwall.host.home import Home, find_home
from curtainwall.host.user import when
from curtainwall.model import NotFound, Workspace
from curtainwall.operations.lookup import find_session
from curtainwall.runtime import SystemClock
from curtainwall.session import inert
from curtainwall.tools.memory import ForgottenNote, MemoryPage, Note, NoteRemoval, read_notes

app = typer.Typer()

_ROOM = 120
NoteArgument = Annotated[str, typer.Argument(metavar="NOTE", help="its id as `memory list` names it, or the beginning of it")]


@app.command("list")
def list_notes(
    workspace: Annotated[Path | None, typer.Option(metavar="DIR", help="only what sessions in this project can recall")] = None,
    session: Annotated[str | None, typer.Option(help="only what this session can recall")] = None,
    forgotten: Annotated[bool, typer.Option("--forgotten", help="what was forgotten and can be put back")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """List every note, by projects; or those that a session, or sessions in a project, can recall."""
    home = find_home()
    if forgotten:
        if workspace or session:
            raise Misuse("--forgotten lists all that was forgotten; leave --workspace and --session out")
        _list_forgotten(home, output)
        return
    pages, mask = _pages(home, workspace, session), judging_masker(home).mask_text
    if output is Output.JSON:
        skipped = [words for page in pages for words in page.skipped]
        show_json({"notes": [_as_json(page, each, mask(each.text)) for page in pages for each in page.notes], "skipped": skipped})
        return
    rows = [(it.name, page.name, *_origin(it), short(mask(it.text), _ROOM)) for page in pages for it in page.notes]
    if rows:
        show(columns(("note", "of", "noted", "by", "labels", "says"), rows))
    for words in (words for page in pages for words in page.skipped):
        note(inert(words))
    if not rows and not any(page.skipped for page in pages):
        note("nothing is remembered yet; docs/memory.md says what agents can note")


@app.command("show")
def show_note(name: NoteArgument, output: OutputOption = Output.TEXT) -> None:
    """Show a note whole, with the file it stands in and the session it came from."""
    home = find_home()
    page, found = _find(home, name)
    text = judging_masker(home).mask_text(found.text)
    if output is Output.JSON:
        show_json(_as_json(page, found, text))
        return
    noted, by, labels = _origin(found)
    of = "what every session can recall" if page.name == "general" else page.name
    session = [("session", found.session)] if found.session else []
    lines = [("note", found.name), ("of", of), ("file", page.path), ("noted", noted), ("by", by), *session, ("labels", labels)]
    show("\n".join(f"{head:<8} {inert(value)}" for head, value in lines))
    show("\n" + "\n".join(inert(line) for line in text.split("\n")))


@app.command()
def forget(
    names: Annotated[list[str], typer.Argument(metavar="NOTE…", help="ids as `memory list` names them, or their beginnings")],
    for_good: Annotated[bool, typer.Option("--for-good", help="keep nothing that `undo` could put back")] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Take notes out of the memory, so that no session recalls them; `memory undo` puts them back."""
    home = find_home()
    bin_, pages = NoteRemoval(home.memory), open_notebook(home).all_pages()
    known = [it.name for it in bin_.forgotten()] if for_good else []
    meant = list(dict.fromkeys(_meant(home, [*(each.name for _, each in _all(pages)), *known], name) for name in names))
    if for_good:
        confirm(f"forget {', '.join(meant)} for good?", yes=yes)
    for name in meant:
        bin_.forget(name, pages, SystemClock().now(), for_good=for_good)
    if output is Output.JSON:
        show_json({"forgotten": meant, "for_good": for_good})
        return
    show("\n".join(f"forgot {name}" for name in meant))
    if not for_good:
        note(
            f"`curtainwall memory undo{f' {meant[0]}' if len(meant) == 1 else ''}` puts {'it' if len(meant) == 1 else 'the last one'} back"
        )


@app.command()
def undo(
    name: Annotated[str | None, typer.Argument(metavar="[NOTE]", help="left out, the last one that was forgotten")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Put back a note that was forgotten, with its labels and where it came from."""
    home = find_home()
    bin_ = NoteRemoval(home.memory)
    kept = [it.name for it in bin_.forgotten()]
    if not kept:
        raise NotFound(f"nothing was forgotten in `{home.memory}` that could be put back")
    back = bin_.undo(None if name is None else _meant(home, kept, name, "forgotten note"))
    show_json({"note": back.name, "file": str(home.memory / back.file)}) if output is Output.JSON else show(f"{back.name} is back")


def _pages(home: Home, workspace: Path | None, session: str | None) -> Sequence[MemoryPage]:
    notebook = open_notebook(home)
    if workspace is not None and session is not None:
        raise Misuse("--workspace and --session name the same thing; give one of them")
    if workspace is not None:
        require_directory(workspace, "--workspace")
        place = Workspace(path=str(workspace.resolve()), own=False)
    elif session is not None:
        with open_to_look(home) as store:
            row = find_session(store.index, session)
        place = Workspace(path=row.workspace, own=row.own_workspace)
    else:
        return notebook.all_pages()
    reach = {page.path for page in notebook.pages(place)}
    return [page for page in notebook.all_pages() if page.path in reach]


def _all(pages: Sequence[MemoryPage]) -> Iterator[tuple[MemoryPage, Note]]:
    return ((page, each) for page in pages for each in page.notes)


def _find(home: Home, text: str) -> tuple[MemoryPage, Note]:
    found = list(_all(open_notebook(home).all_pages()))
    name = _meant(home, [each.name for _, each in found], text)
    return next((page, each) for page, each in found if each.name == name)


def _meant(home: Home, names: Sequence[str], text: str, what: str = "note") -> str:
    """Return the name that was written, or the only one that begins so."""
    begun = {text} if text in names else {name for name in names if text and name.startswith(text)}
    if len(begun) > 1:
        raise NotFound(f"more than one {what} begins with `{text}`; give more of the id")
    if not begun:
        option = "" if what == "note" else " --forgotten"
        raise NotFound(f"there is no {what} `{text}` in `{home.memory}`; `curtainwall memory list{option}` shows them")
    return begun.pop()


def _origin(found: Note) -> tuple[str, str, str]:
    if found.is_by_hand:
        return "-", "hand", "-"
    return when(found.at), found.agent, ", ".join(found.labels) or "-"


def _as_json(page: MemoryPage, found: Note, text: str) -> dict[str, object]:
    return {
        "id": found.name,
        "of": page.name,
        "file": page.path,
        "at": None if found.is_by_hand else timestamp(found.at),
        "session": found.session or None,
        "agent": found.agent or None,
        "labels": list(found.labels),
        "text": text,
    }


def _list_forgotten(home: Home, output: Output) -> None:
    mask, kept = judging_masker(home).mask_text, list(reversed(NoteRemoval(home.memory).forgotten()))
    if output is Output.JSON:
        told = [{"id": it.name, "file": str(home.memory / it.file), "forgotten": timestamp(it.at), "text": mask(_says(it))} for it in kept]
        show_json(told)
    elif kept:
        show(columns(("note", "forgotten", "says"), [(it.name, when(it.at), short(mask(_says(it)), _ROOM)) for it in kept]))
    else:
        note("nothing was forgotten that could be put back")


def _says(kept: ForgottenNote) -> str:
    return "\n".join(each.text for each in read_notes(kept.text) if isinstance(each, Note))
