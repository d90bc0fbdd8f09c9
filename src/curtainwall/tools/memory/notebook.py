"""The memory of one home: one page for everything and one per project, added to by agents, and pruned by people who can undo it."""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, cast

from curtainwall.host import locked, replace_file
from curtainwall.model import Millis, NotFound, Workspace
from curtainwall.tools.memory.notes import DamagedNote, Note, read_notes, remove_note, render_note, restore_note
from curtainwall.tools.runners import CannotDo

MOST_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """One file of a memory as it is now; `skipped` says what in it could not be read."""

    name: str
    path: str
    notes: Sequence[Note] = ()
    skipped: Sequence[str] = ()


def read_page(name: str, path: Path) -> MemoryPage:
    """Return a page under a name for it; one that cannot be read has no notes, and says why."""
    try:
        content = page_content(path)
    except CannotDo as fault:
        return MemoryPage(name, str(path), skipped=(str(fault),))
    notes: list[Note] = []
    skipped: list[str] = []
    for each in read_notes((content or b"").decode("utf-8", "replace")):
        if isinstance(each, DamagedNote):
            skipped.append(f"the note at line {each.line} of `{path}` is passed over: {each.why}")
        else:
            notes.append(each)
    return MemoryPage(name, str(path), tuple(notes), tuple(skipped))


def page_content(path: Path) -> bytes | None:
    """Return a page's content, or None where there is none yet; raise `CannotDo` for what is no page of ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise CannotDo(f"`{path}` cannot be read ({(fault.strerror or '').lower()}); nothing in it is recalled") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CannotDo(f"`{path}` is no file; nothing in it is recalled")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise CannotDo(f"`{path}` is bigger than {MOST_BYTES // 1024} KiB; nothing in it is recalled until somebody shortens it")
    return content


def write_page(path: Path, content: bytes) -> None:
    """Put content in the place of a page's; raise `CannotDo` where it is too much, and then nothing is changed."""
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


@dataclass(frozen=True, slots=True)
class NoteMatch:
    """A note that fits a question, and the page it stands on."""

    note: Note
    page: str


class Notebook:
    """Files that people may edit as they like; what they make of them is what counts."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path_for(self, workspace: Workspace) -> Path:
        """Return where a session's notes go: to its project, or, in a workspace of its own, to what every session reads."""
        if workspace.own:
            return self._root / GENERAL
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", workspace.path.rpartition("/")[2]).strip(".-")[:60] or "project"
        return self._root / _PROJECTS / f"{name}-{hashlib.sha256(workspace.path.encode()).hexdigest()[:12]}.md"

    def pages(self, workspace: Workspace) -> Sequence[MemoryPage]:
        """Return what a session can recall: its project's page, then the general one."""
        paths = dict.fromkeys((self.path_for(workspace), self._root / GENERAL))
        return tuple(read_page("general" if path.name == GENERAL else "project", path) for path in paths)

    def all_pages(self) -> Sequence[MemoryPage]:
        """Return every page there is, the general one first, each project's under the project's path where it tells that."""
        projects = sorted((self._root / _PROJECTS).glob("*.md"))
        general = self._root / GENERAL
        return tuple(read_page(self._title_of(path), path) for path in (*([general] if general.exists() else []), *projects))

    def _title_of(self, path: Path) -> str:
        if path.name == GENERAL:
            return "general"
        with suppress(CannotDo):
            first = (page_content(path) or b"").partition(b"\n")[0].decode("utf-8", "replace").strip()
            project = first.removeprefix(_ON_PROJECT)
            # A title is text that people may change; the name of the file is made from the real path.
            if self.path_for(Workspace(path=project, own=False)) == path:
                return project
        return path.stem

    def add(self, workspace: Workspace, note: Note) -> Path:
        """Write a note down and return where; whole or not at all, whatever becomes of us, and beside those that others write."""
        path = self.path_for(workspace)
        with locked(self._root / ".lock"):
            before = page_content(path)
            if before is None:
                title = "# What every session can recall" if workspace.own else f"{_ON_PROJECT}{workspace.path}"
                before = f"{title}\n".encode()
            write_page(path, before.rstrip(b"\n") + b"\n\n" + render_note(note).encode())
        return path

    def search(self, workspace: Workspace, query: str, most: int) -> Sequence[NoteMatch]:
        """Return the notes with the most words of a question, the newest first among equals."""
        words = {word.casefold() for word in _WORD.findall(query)}
        found = [
            (score, match.note.at, match)
            for match in _all(self.pages(workspace))
            if (score := len(words & {word.casefold() for word in _WORD.findall(match.note.text)}))
        ]
        return tuple(match for _, _, match in sorted(found, key=lambda each: each[:2], reverse=True)[:most])


def _all(pages: Sequence[MemoryPage]) -> Iterator[NoteMatch]:
    for page in pages:
        yield from (NoteMatch(note, page.name) for note in page.notes)


_KEPT: Final = "forgotten.jsonl"


@dataclass(frozen=True, slots=True)
class ForgottenNote:
    """A note that nobody can recall: the file and the line where it stood, since when it is gone, and its part of that file."""

    name: str
    file: str
    line: int
    at: Millis
    text: str


class NoteRemoval:
    """What was taken out of the memory of one home, oldest first; so much of it is kept as a page can hold."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def forgotten(self) -> Sequence[ForgottenNote]:
        """Return what can be put back."""
        lines = (page_content(self._root / _KEPT) or b"").decode("utf-8", "replace").splitlines()
        return tuple(read for line in lines if (read := _read(line)) is not None)

    def forget(self, name: str, pages: Sequence[MemoryPage], at: Millis, *, for_good: bool) -> None:
        """Take a note out of the pages that have it, and where that is for good, out of what can be put back."""
        with locked(self._root / ".lock"):
            kept = list(self.forgotten())
            found = [(path, *remove_note(_text(path), name)) for path in (Path(page.path) for page in pages)]
            taken = [ForgottenNote(name, str(path.relative_to(self._root)), line, at, note) for path, _, note, line in found if note]
            # Kept before it is taken out: whatever becomes of us, the note is in one of the two places.
            self._keep([it for it in kept if it.name != name] if for_good else [*kept, *taken])
            for path, rest, note, _ in found:
                if note:
                    write_page(path, rest.encode())

    def undo(self, name: str | None = None) -> ForgottenNote:
        """Put back the note of that name, or the last one that was forgotten, and return it."""
        with locked(self._root / ".lock"):
            kept = list(self.forgotten())
            last = next((it for it in reversed(kept) if name in (None, it.name)), None)
            if last is None:
                raise NotFound(f"no note `{name}` was forgotten" if name else "nothing was forgotten that could be put back")
            path = self._root / last.file
            before = _text(path)
            if not remove_note(before, last.name)[1]:
                write_page(path, restore_note(before, last.text, last.line).encode())
            kept.remove(last)
            self._keep(kept)
        return last

    def _keep(self, kept: Sequence[ForgottenNote]) -> None:
        lines = [json.dumps(asdict(it)).encode() + b"\n" for it in kept]
        while sum(map(len, lines)) > MOST_BYTES:
            del lines[0]
        if lines or (self._root / _KEPT).exists():
            write_page(self._root / _KEPT, b"".join(lines))


def _text(path: Path) -> str:
    try:
        return (page_content(path) or b"").decode()
    except UnicodeDecodeError:
        raise CannotDo(f"`{path}` is not written in UTF-8, so what is not meant would be changed along; edit it by hand") from None


def _read(kept: str) -> ForgottenNote | None:
    try:
        read: object = json.loads(kept)
    except (ValueError, RecursionError):
        return None
    told = cast("dict[str, object]", read) if isinstance(read, dict) else {}
    name, file, line, at, text = (told.get(key) for key in ("name", "file", "line", "at", "text"))
    if not (isinstance(name, str) and isinstance(file, str) and type(line) is int and type(at) is int and isinstance(text, str)):
        return None
    # It leads to a page of this memory, and nowhere else.
    return None if file.startswith("/") or ".." in Path(file).parts else ForgottenNote(name, file, line, at, text)
