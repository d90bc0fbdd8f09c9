"""The memory of one home: a file for everything, and one for each project; agents add to them, and nothing else."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtainwall.host import locked
from curtainwall.model import Workspace
from curtainwall.tools.memory.entries import Note, written
from curtainwall.tools.memory.pages import Page, content_of, page_at, write_page
from curtainwall.tools.runners import CannotDo

GENERAL: Final = "general.md"
_PROJECTS: Final = "projects"
_ON_PROJECT: Final = "# Notes on "
_WORD: Final = re.compile(r"\w+")


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
        return tuple(page_at("general" if path.name == GENERAL else "project", path) for path in paths)

    def all_pages(self) -> Sequence[Page]:
        """Return every page there is, the general one first, each project's under the project's path where it tells that."""
        projects = sorted((self._root / _PROJECTS).glob("*.md"))
        general = self._root / GENERAL
        return tuple(page_at(self._title_of(path), path) for path in (*([general] if general.exists() else []), *projects))

    def _title_of(self, path: Path) -> str:
        if path.name == GENERAL:
            return "general"
        with suppress(CannotDo):
            first = (content_of(path) or b"").partition(b"\n")[0].decode("utf-8", "replace").strip()
            project = first.removeprefix(_ON_PROJECT)
            # A title is text that people may change; the name of the file is made from the real path.
            if self.path_for(Workspace(path=project, own=False)) == path:
                return project
        return path.stem

    def add(self, workspace: Workspace, note: Note) -> Path:
        """Write a note down and return where; whole or not at all, whatever becomes of us, and beside those that others write."""
        path = self.path_for(workspace)
        with locked(self._root / ".lock"):
            before = content_of(path)
            if before is None:
                title = "# What every session can recall" if workspace.own else f"{_ON_PROJECT}{workspace.path}"
                before = f"{title}\n".encode()
            write_page(path, before.rstrip(b"\n") + b"\n\n" + written(note).encode())
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
