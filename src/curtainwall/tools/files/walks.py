"""Walk a directory tree by descriptor: follow no link, skip protected paths, and always terminate."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Final, Literal

from curtainwall.host import open_beneath
from curtainwall.model import record
from curtainwall.tools.files.globs import IgnoreFile

MAX_VISITED: Final = 100_000
MAX_DEPTH: Final = 48
MAX_SECONDS: Final = 10.0

Kind = Literal["file", "directory", "link", "other"]

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_IGNORE_FILES = (".gitignore", ".ignore")
_MAX_IGNORE_FILE = 65_536
_AT_ONCE = 10_000
# Every name is matched against every line of the ignore files above it.
_MAX_LINES, _MAX_LINES_AT_ONCE = 2_000, 10_000
# These hold no real files, and are endless.
_ENDLESS = frozenset({"/dev", "/proc", "/sys"})


@record
class WalkEntry:
    """One entry of a walk; `inner` is its path relative to the root of the walk."""

    inner: str
    name: str
    kind: Kind
    depth: int


@dataclass(slots=True)
class DirectoryWalk:
    """One walk below a canonical directory; `cut` says afterwards that it ended early."""

    root: str
    is_protected: Callable[[str], bool]
    ignores: bool = False
    cut: bool = False
    seconds: float = MAX_SECONDS
    _visited: int = 0
    _until: float = 0.0
    _is_over: bool = False
    _ignored_by: list[tuple[str, IgnoreFile]] = field(default_factory=list[tuple[str, IgnoreFile]])

    def __iter__(self) -> Iterator[WalkEntry]:
        """Yield everything below the root, each directory before what it holds, by name."""
        self._until = time.monotonic() + self.seconds
        directory = open_beneath(self.root, _OPEN)
        try:
            yield from self._below(directory, "", 1)
        finally:
            os.close(directory)

    def _below(self, directory: int, prefix: str, depth: int) -> Iterator[WalkEntry]:
        known = len(self._ignored_by)
        if self.ignores:
            self._take_ignore_files(directory, prefix)
        with os.scandir(directory) as entries:
            # A directory can hold more names than fit into memory; up to a limit they are sorted by name, beyond it in portions.
            while names := _portion(entries):
                for name, kind in names:
                    yield from self._at(directory, name, kind, prefix, depth)
                    if self._is_over:
                        return
        del self._ignored_by[known:]

    def _at(self, directory: int, name: str, kind: Kind, prefix: str, depth: int) -> Iterator[WalkEntry]:
        inner = f"{prefix}{name}"
        # Skipped entries take time as well.
        if time.monotonic() > self._until:
            self.cut = self._is_over = True
            return
        if self._is_left_out(inner, name, kind):
            return
        self._visited += 1
        if self._visited > MAX_VISITED:
            self.cut = self._is_over = True
            return
        yield WalkEntry(inner, name, kind, depth)
        if kind != "directory":
            return
        if depth >= MAX_DEPTH:
            self.cut = True
            return
        try:
            below = os.open(name, _OPEN, dir_fd=directory)
        except OSError:
            return
        try:
            yield from self._below(below, f"{inner}/", depth + 1)
        finally:
            os.close(below)

    def _take_ignore_files(self, directory: int, prefix: str) -> None:
        for text in _ignore_texts(directory):
            room = _MAX_LINES_AT_ONCE - sum(len(file) for _, file in self._ignored_by)
            self._ignored_by.append((prefix, IgnoreFile(text, min(room, _MAX_LINES))))

    def _is_left_out(self, inner: str, name: str, kind: Kind) -> bool:
        full = f"{self.root.rstrip('/')}/{inner}"
        if full in _ENDLESS or self.is_protected(full) or not _is_text(name):
            return True
        if not self.ignores:
            return False
        if name == ".git":
            return True
        for prefix, file in reversed(self._ignored_by):
            is_ignored = file.says(inner[len(prefix) :], is_directory=kind == "directory")
            if is_ignored is not None:
                return is_ignored
        return False


@dataclass(slots=True)
class DirectoryListing:
    """The entries of one directory, not recursive; afterwards `count` is the number of names seen, and `cut` says that there are more."""

    directory: int
    seconds: float = MAX_SECONDS
    count: int = 0
    cut: bool = False

    def first(self, most: int) -> list[tuple[str, Kind]]:
        """Return the first names in order; memory use stays bounded by their number, however many entries there are."""
        return nsmallest(most, self._entries())

    def _entries(self) -> Iterator[tuple[str, Kind]]:
        until = time.monotonic() + self.seconds
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if time.monotonic() > until:
                    self.cut = True
                    return
                self.count += 1
                yield entry.name, kind_of_entry(entry)


def _portion(entries: Iterator[os.DirEntry[str]]) -> list[tuple[str, Kind]]:
    return sorted((entry.name, kind_of_entry(entry)) for entry in islice(entries, _AT_ONCE))


def kind_of_entry(entry: os.DirEntry[str]) -> Kind:
    """Return what an entry of a directory is, without following it."""
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def kind_of_mode(mode: int) -> Kind:
    """Return what a file is by its mode."""
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISDIR(mode):
        return "directory"
    return "file" if stat.S_ISREG(mode) else "other"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _ignore_texts(directory: int) -> Iterator[str]:
    for name in _IGNORE_FILES:
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        except OSError:
            continue
        try:
            if stat.S_ISREG(os.fstat(file).st_mode):
                yield os.read(file, _MAX_IGNORE_FILE).decode(errors="replace")
        finally:
            os.close(file)
