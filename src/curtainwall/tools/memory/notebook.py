"""The memory of one home: a general page and one per project. Agents add notes; people can remove them and undo that."""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final, cast

from curtainwall.host import locked, replace_file
from curtainwall.model import Millis, NotFound, Workspace, record
from curtainwall.tools.memory.notes import DamagedNote, Note, read_notes, remove_note, render_note, restore_note
from curtainwall.tools.runners import CannotDo

MOST_BYTES: Final = 1024 * 1024


@record
class MemoryPage:
    """A snapshot of one memory file; `skipped` lists what could not be read."""

    name: str
    path: str
    notes: Sequence[Note] = ()
    skipped: Sequence[str] = ()


def read_page(name: str, path: Path) -> MemoryPage:
    """Read a page under a name; an unreadable page has no notes and says why."""
    try:
        content = page_content(path)
    except CannotDo as error:
        return MemoryPage(name, str(path), skipped=(str(error),))
    notes: list[Note] = []
    skipped: list[str] = []
    for note in read_notes((content or b"").decode("utf-8", "replace")):
        if isinstance(note, DamagedNote):
            skipped.append(f"the note at line {note.line} of `{path}` is passed over: {note.why}")
        else:
            notes.append(note)
    return MemoryPage(name, str(path), tuple(notes), tuple(skipped))


def page_content(path: Path) -> bytes | None:
    """Return a page's content, or None if it does not exist; raise `CannotDo` if it is not a valid page."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotDo(f"`{path}` cannot be read ({(error.strerror or '').lower()}); nothing in it is recalled") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CannotDo(f"`{path}` is no file; nothing in it is recalled")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise CannotDo(f"`{path}` is bigger than {MOST_BYTES // 1024} KiB; nothing in it is recalled until somebody shortens it")
    return content


def write_page(path: Path, content: bytes) -> None:
    """Replace a page's content; raise `CannotDo` and change nothing if it is too large."""
    if len(content) > MOST_BYTES:
        raise CannotDo(f"this memory is full ({MOST_BYTES // 1024} KiB): the person can shorten `{path}`")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        path.touch(mode=0o600)
    replace_file(str(path), content)


GENERAL: Final = "general.md"
_PROJECTS: Final = "projects"
_ON_PROJECT: Final = "# Notes on "
_WORD: Final = re.compile(r"\w+")


@record
class NoteMatch:
    """A note that matches a query, and its page."""

    note: Note
    page: str


class Notebook:
    """Memory files, which people may also edit directly; the files are authoritative."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path_for(self, workspace: Workspace) -> Path:
        """Return where a session's notes go: its project's page, or the general page if the session owns its workspace."""
        if workspace.own:
            return self._root / GENERAL
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", workspace.path.rpartition("/")[2]).strip(".-")[:60] or "project"
        return self._root / _PROJECTS / f"{name}-{hashlib.sha256(workspace.path.encode()).hexdigest()[:12]}.md"

    def pages(self, workspace: Workspace) -> Sequence[MemoryPage]:
        """Return what a session can recall: its project's page, then the general one."""
        paths = dict.fromkeys((self.path_for(workspace), self._root / GENERAL))
        return tuple(read_page("general" if path.name == GENERAL else "project", path) for path in paths)

    def all_pages(self) -> Sequence[MemoryPage]:
        """Return every page, the general one first; a project's page is named by the project's path if its title states it."""
        projects = sorted((self._root / _PROJECTS).glob("*.md"))
        general = self._root / GENERAL
        return tuple(read_page(self._title_of(path), path) for path in (*([general] if general.exists() else []), *projects))

    def _title_of(self, path: Path) -> str:
        if path.name == GENERAL:
            return "general"
        with suppress(CannotDo):
            first = (page_content(path) or b"").partition(b"\n")[0].decode("utf-8", "replace").strip()
            project = first.removeprefix(_ON_PROJECT)
            # People may change a title, but the file name is derived from the real path.
            if self.path_for(Workspace(path=project, own=False)) == path:
                return project
        return path.stem

    def add(self, workspace: Workspace, note: Note) -> Path:
        """Add a note atomically, safe with concurrent writers, and return its page."""
        path = self.path_for(workspace)
        with locked(self._root / ".lock"):
            before = page_content(path)
            if before is None:
                title = "# What every session can recall" if workspace.own else f"{_ON_PROJECT}{workspace.path}"
                before = f"{title}\n".encode()
            write_page(path, before.rstrip(b"\n") + b"\n\n" + render_note(note).encode())
        return path

    def search(self, workspace: Workspace, query: str, most: int) -> Sequence[NoteMatch]:
        """Return the notes that share the most words with a query, newest first among equals."""
        words = {word.casefold() for word in _WORD.findall(query)}
        scored = [
            (score, match.note.at, match)
            for match in _all(self.pages(workspace))
            if (score := len(words & {word.casefold() for word in _WORD.findall(match.note.text)}))
        ]
        return tuple(match for _, _, match in sorted(scored, key=lambda item: item[:2], reverse=True)[:most])


def _all(pages: Sequence[MemoryPage]) -> Iterator[NoteMatch]:
    for page in pages:
        yield from (NoteMatch(note, page.name) for note in page.notes)


_KEPT: Final = "forgotten.jsonl"


@record
class ForgottenNote:
    """A removed note: the file and line where it was, when it was removed, and its text in that file."""

    name: str
    file: str
    line: int
    at: Millis
    text: str


class NoteRemoval:
    """The notes removed from the memory of one home, oldest first, kept up to the size limit of a page."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def forgotten(self) -> Sequence[ForgottenNote]:
        """Return the notes that can be restored."""
        lines = (page_content(self._root / _KEPT) or b"").decode("utf-8", "replace").splitlines()
        return tuple(note for line in lines if (note := _read(line)) is not None)

    def forget(self, name: str, pages: Sequence[MemoryPage], at: Millis, *, for_good: bool) -> None:
        """Remove a note from the pages that have it; with `for_good`, also from the notes that can be restored."""
        with locked(self._root / ".lock"):
            kept = list(self.forgotten())
            results = [(path, *remove_note(_text(path), name)) for path in (Path(page.path) for page in pages)]
            removed = [ForgottenNote(name, str(path.relative_to(self._root)), line, at, note) for path, _, note, line in results if note]
            # Save it before removing it: after a crash, the note is in at least one of the two places.
            self._save([entry for entry in kept if entry.name != name] if for_good else [*kept, *removed])
            for path, rest, note, _ in results:
                if note:
                    write_page(path, rest.encode())

    def undo(self, name: str | None = None) -> ForgottenNote:
        """Restore the named note, or the last one that was forgotten, and return it."""
        with locked(self._root / ".lock"):
            kept = list(self.forgotten())
            last = next((entry for entry in reversed(kept) if name in (None, entry.name)), None)
            if last is None:
                raise NotFound(f"no note `{name}` was forgotten" if name else "nothing was forgotten that could be put back")
            path = self._root / last.file
            before = _text(path)
            if not remove_note(before, last.name)[1]:
                write_page(path, restore_note(before, last.text, last.line).encode())
            kept.remove(last)
            self._save(kept)
        return last

    def _save(self, entries: Sequence[ForgottenNote]) -> None:
        lines = [json.dumps(asdict(entry)).encode() + b"\n" for entry in entries]
        while sum(map(len, lines)) > MOST_BYTES:
            del lines[0]
        if lines or (self._root / _KEPT).exists():
            write_page(self._root / _KEPT, b"".join(lines))


def _text(path: Path) -> str:
    try:
        return (page_content(path) or b"").decode()
    except UnicodeDecodeError:
        raise CannotDo(f"`{path}` is not written in UTF-8, so what is not meant would be changed along; edit it by hand") from None


def _read(record: str) -> ForgottenNote | None:
    try:
        parsed: object = json.loads(record)
    except (ValueError, RecursionError):
        return None
    fields = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
    name, file, line, at, text = (fields.get(key) for key in ("name", "file", "line", "at", "text"))
    if not (isinstance(name, str) and isinstance(file, str) and type(line) is int and type(at) is int and isinstance(text, str)):
        return None
    # The path must lead to a page of this memory.
    return None if file.startswith("/") or ".." in Path(file).parts else ForgottenNote(name, file, line, at, text)
