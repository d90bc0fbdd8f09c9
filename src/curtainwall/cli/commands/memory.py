"""`curtainwall memory`: list, show and forget what agents noted for later sessions."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.channels import short
from curtainwall.cli.read_only import open_for_reading
from curtainwall.cli.screen import (
    Misuse,
    Output,
    OutputOption,
    YesOption,
    columns,
    confirm,
    hint,
    note,
    require_directory,
    show,
    show_json,
    timestamp,
)
from curtainwall.compose.knowledge import open_notebook
from curtainwall.compose.masker import judging_masker
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
        hint("nothing is remembered yet; docs/memory.md says what agents can note")


@app.command("show")
def show_note(name: NoteArgument, output: OutputOption = Output.TEXT) -> None:
    """Show a note whole, with the file it stands in and the session it came from."""
    home = find_home()
    page, entry = _find(home, name)
    text = judging_masker(home).mask_text(entry.text)
    if output is Output.JSON:
        show_json(_as_json(page, entry, text))
        return
    noted, by, labels = _origin(entry)
    scope = "what every session can recall" if page.name == "general" else page.name
    session = [("session", entry.session)] if entry.session else []
    lines = [("note", entry.name), ("of", scope), ("file", page.path), ("noted", noted), ("by", by), *session, ("labels", labels)]
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
    forgotten_names = [it.name for it in bin_.forgotten()] if for_good else []
    ids = list(dict.fromkeys(_resolve(home, [*(each.name for _, each in _all(pages)), *forgotten_names], name) for name in names))
    if for_good:
        confirm(f"forget {', '.join(ids)} for good?", yes=yes)
    for name in ids:
        bin_.forget(name, pages, SystemClock().now(), for_good=for_good)
    if output is Output.JSON:
        show_json({"forgotten": ids, "for_good": for_good})
        return
    show("\n".join(f"forgot {name}" for name in ids))
    if not for_good:
        hint(f"`curtainwall memory undo{f' {ids[0]}' if len(ids) == 1 else ''}` puts {'it' if len(ids) == 1 else 'the last one'} back")


@app.command()
def undo(
    name: Annotated[str | None, typer.Argument(metavar="[NOTE]", help="left out, the last one that was forgotten")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Put back a note that was forgotten, with its labels and where it came from."""
    home = find_home()
    bin_ = NoteRemoval(home.memory)
    names = [it.name for it in bin_.forgotten()]
    if not names:
        raise NotFound(f"nothing was forgotten in `{home.memory}` that could be put back")
    restored = bin_.undo(None if name is None else _resolve(home, names, name, "forgotten note"))
    show_json({"note": restored.name, "file": str(home.memory / restored.file)}) if output is Output.JSON else show(
        f"{restored.name} is back"
    )


def _pages(home: Home, workspace: Path | None, session: str | None) -> Sequence[MemoryPage]:
    notebook = open_notebook(home)
    if workspace is not None and session is not None:
        raise Misuse("--workspace and --session name the same thing; give one of them")
    if workspace is not None:
        require_directory(workspace, "--workspace")
        target = Workspace(path=str(workspace.resolve()), own=False)
    elif session is not None:
        with open_for_reading(home) as store:
            row = find_session(store.index, session)
        target = Workspace(path=row.workspace, own=row.own_workspace)
    else:
        return notebook.all_pages()
    paths = {page.path for page in notebook.pages(target)}
    return [page for page in notebook.all_pages() if page.path in paths]


def _all(pages: Sequence[MemoryPage]) -> Iterator[tuple[MemoryPage, Note]]:
    return ((page, each) for page in pages for each in page.notes)


def _find(home: Home, text: str) -> tuple[MemoryPage, Note]:
    notes = list(_all(open_notebook(home).all_pages()))
    name = _resolve(home, [each.name for _, each in notes], text)
    return next((page, each) for page, each in notes if each.name == name)


def _resolve(home: Home, names: Sequence[str], text: str, what: str = "note") -> str:
    """Return the name that equals the text, or the only one that begins with it."""
    matches = {text} if text in names else {name for name in names if text and name.startswith(text)}
    if len(matches) > 1:
        raise NotFound(f"more than one {what} begins with `{text}`; give more of the id")
    if not matches:
        option = "" if what == "note" else " --forgotten"
        raise NotFound(f"there is no {what} `{text}` in `{home.memory}`; `curtainwall memory list{option}` shows them")
    return matches.pop()


def _origin(entry: Note) -> tuple[str, str, str]:
    if entry.is_by_hand:
        return "-", "hand", "-"
    return when(entry.at), entry.agent, ", ".join(entry.labels) or "-"


def _as_json(page: MemoryPage, entry: Note, text: str) -> dict[str, object]:
    return {
        "id": entry.name,
        "of": page.name,
        "file": page.path,
        "at": None if entry.is_by_hand else timestamp(entry.at),
        "session": entry.session or None,
        "agent": entry.agent or None,
        "labels": list(entry.labels),
        "text": text,
    }


def _list_forgotten(home: Home, output: Output) -> None:
    mask, forgotten = judging_masker(home).mask_text, list(reversed(NoteRemoval(home.memory).forgotten()))
    if output is Output.JSON:
        documents = [
            {"id": it.name, "file": str(home.memory / it.file), "forgotten": timestamp(it.at), "text": mask(_says(it))} for it in forgotten
        ]
        show_json(documents)
    elif forgotten:
        show(columns(("note", "forgotten", "says"), [(it.name, when(it.at), short(mask(_says(it)), _ROOM)) for it in forgotten]))
    else:
        hint("nothing was forgotten that could be put back")


def _says(forgotten: ForgottenNote) -> str:
    return "\n".join(each.text for each in read_notes(forgotten.text) if isinstance(each, Note))
