"""The memory of one home: a file for everything, and one for each project; agents add to them, and nothing else."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtainwall.host import locked, replace_file
from curtainwall.model import Workspace
from curtainwall.tools.memory.entries import Damaged, Note, read_notes, written
from curtainwall.tools.running import CannotDo

MOST_BYTES: Final = 1024 * 1024
GENERAL: Final = "general.md"
_PROJECTS: Final = "projects"
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Page:
    """One file of a memory as it is now; `skipped` says what in it could not be read."""

    name: str
    path: str
    notes: Sequence[Note] = ()
    skipped: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Match:
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

    def pages(self, workspace: Workspace) -> Sequence[Page]:
        """Return what a session can recall: its project's page, then the general one."""
        paths = dict.fromkeys((self.path_for(workspace), self._root / GENERAL))
        return tuple(_page("general" if path.name == GENERAL else "project", path) for path in paths)

    def add(self, workspace: Workspace, note: Note) -> Path:
        """Write a note down and return where; whole or not at all, whatever becomes of us, and beside those that others write."""
        path = self.path_for(workspace)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with locked(self._root / ".lock"):
            before = _content(path)
            if before is None:
                title = "# What every session can recall" if workspace.own else f"# Notes on {workspace.path}"
                before = f"{title}\n".encode()
            entry = written(note).encode()
            after = before.rstrip(b"\n") + b"\n\n" + entry
            if len(after) > MOST_BYTES:
                raise CannotDo(f"this memory is full ({MOST_BYTES // 1024} KiB): the person can shorten `{path}`")
            if not path.exists():
                path.touch(mode=0o600)
            replace_file(str(path), after)
        return path

    def search(self, workspace: Workspace, query: str, most: int) -> Sequence[Match]:
        """Return the notes with the most words of a question, the newest first among equals."""
        words = {word.casefold() for word in _WORD.findall(query)}
        found = [
            (score, match.note.at, match)
            for match in _all(self.pages(workspace))
            if (score := len(words & {word.casefold() for word in _WORD.findall(match.note.text)}))
        ]
        return tuple(match for _, _, match in sorted(found, key=lambda each: each[:2], reverse=True)[:most])


def _all(pages: Sequence[Page]) -> Iterator[Match]:
    for page in pages:
        yield from (Match(note, page.name) for note in page.notes)


def _page(name: str, path: Path) -> Page:
    try:
        content = _content(path)
    except CannotDo as fault:
        return Page(name, str(path), skipped=(str(fault),))
    notes: list[Note] = []
    skipped: list[str] = []
    for each in read_notes((content or b"").decode("utf-8", "replace")):
        if isinstance(each, Damaged):
            skipped.append(f"the note at line {each.line} of `{path}` is passed over: {each.why}")
        else:
            notes.append(each)
    return Page(name, str(path), tuple(notes), tuple(skipped))


def _content(path: Path) -> bytes | None:
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
