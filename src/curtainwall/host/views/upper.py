"""Reads and prunes the changes that an overlay keeps in its upper directory, without mounting it.

A character device 0,0 there says that the project's entry is deleted, and a directory with an attribute hides the project's directory. All
else is what it looks like. Nothing there is trusted: an agent that could forge such an entry would only change what a human is shown.
"""

import os
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from curtainwall.host.views.differences import MOST_CHANGES, Spot, is_git
from curtainwall.host.views.states import LIST
from curtainwall.model import ViewFailed

MAX_DEPTH: Final = 128
_OPAQUE: Final = "user.overlay.opaque"
_ORIGIN: Final = "user.overlay.origin"

Visit = Callable[[str, Spot | None, Spot | None], None]


@dataclass(slots=True)
class Upper:
    """One pass over an upper directory, beside the project below it.

    Each path that may differ is visited with where the project and the view may have something there. `is_left_out` skips paths with all
    that is in them.
    """

    visit: Visit
    is_left_out: Callable[[str], bool] | None = None
    git: list[str] = field(default_factory=list[str])
    faults: dict[str, str] = field(default_factory=dict[str, str])
    into_new: bool = True
    """Whether directories that the project does not have are entered."""
    _count: int = 0

    def read(self, upper: int, lower: int) -> None:
        """Visit everything in an open upper directory."""
        self._read(upper, lower, "", 0)

    def _read(self, upper: int, lower: int | None, above: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ViewFailed(f"the view has directories that are more than {MAX_DEPTH} levels deep")
        names = set(os.listdir(upper))
        for name in sorted(names):
            path = f"{above}{name}"
            if not self._is_skipped(path, name):
                self._read_entry(upper, lower, name, path, depth)
        if lower is not None and is_opaque(upper):
            for name in sorted({*os.listdir(lower)} - names):
                self._visit_deleted(lower, name, f"{above}{name}", depth)

    def _read_entry(self, upper: int, lower: int | None, name: str, path: str, depth: int) -> None:
        status = os.stat(name, dir_fd=upper, follow_symlinks=False)
        old = None if lower is None else _status(lower, name)
        below = None if lower is None else (lower, name)
        if is_whiteout(status):
            if lower is not None and old is not None:
                self._visit_deleted(lower, name, path, depth)
            return
        if not stat.S_ISDIR(status.st_mode):
            if below is not None and old is not None and stat.S_ISDIR(old.st_mode):
                self._visit_deleted_in(below, path, depth)
            self._visit(path, below, (upper, name))
            return
        self._visit(path, below, (upper, name))
        is_new = old is None or not stat.S_ISDIR(old.st_mode)
        if is_new and not self.into_new:
            return
        try:
            inner = os.open(name, LIST, dir_fd=upper)
        except PermissionError:
            self.faults[path] = "its directory cannot be listed"
            return
        inner_below = None if below is None or is_new else _opened(below)
        try:
            self._read(inner, inner_below, f"{path}/", depth + 1)
        finally:
            os.close(inner)
            if inner_below is not None:
                os.close(inner_below)

    def _visit_deleted(self, lower: int, name: str, path: str, depth: int) -> None:
        """Visit an entry of the project that the view does not have, and everything in it."""
        if self._is_skipped(path, name):
            return
        self._visit(path, (lower, name), None)
        status = _status(lower, name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            self._visit_deleted_in((lower, name), path, depth)

    def _visit_deleted_in(self, below: Spot, path: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ViewFailed(f"the project has directories that are more than {MAX_DEPTH} levels deep")
        inner = _opened(below)
        if inner is None:
            return
        try:
            for name in sorted(os.listdir(inner)):
                self._visit_deleted(inner, name, f"{path}/{name}", depth + 1)
        finally:
            os.close(inner)

    def _visit(self, path: str, below: Spot | None, above: Spot | None) -> None:
        self._count += 1
        if self._count > 8 * MOST_CHANGES:
            raise ViewFailed("the view has too many files to look through")
        self.visit(path, below, above)

    def _is_skipped(self, path: str, name: str) -> bool:
        if is_git(name):
            self.git.append(path)
            return True
        return self.is_left_out is not None and self.is_left_out(path)


def is_whiteout(status: os.stat_result) -> bool:
    """Tell whether an entry of an upper directory says that the project's is deleted."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(directory: int) -> bool:
    """Tell whether a directory of an upper directory hides the project's."""
    try:
        return os.getxattr(directory, _OPAQUE) == b"y"
    except OSError:
        return False


def was_copied_up(directory: int, name: str) -> bool:
    """Tell whether a file of an upper directory began as a copy of one of the project's, maybe of another name."""
    try:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return False
    try:
        return _ORIGIN in os.listxattr(opened)
    except OSError:
        return False
    finally:
        os.close(opened)


def prune(upper: int, lower: int, paths: Collection[str]) -> None:
    """Remove the changes of these paths, parents before what is in them, from an upper directory that is not mounted."""
    for path in sorted(paths, key=lambda path: path.count("/"), reverse=True):
        _prune(upper, lower, path.split("/"))


def _prune(upper: int, lower: int | None, names: list[str]) -> None:
    """Remove the change of one path; a directory on the way that hides the project's says one by one what it hides from now on."""
    name, *rest = names
    if lower is not None and is_opaque(upper):
        _spell_out(upper, lower)
    status = _status(upper, name)
    if status is None:
        return
    below = None if lower is None else _opened((lower, name))
    try:
        if rest and below is not None and is_whiteout(status):
            status = _reopen(upper, name, below)
        is_directory = stat.S_ISDIR(status.st_mode)
        if not is_directory:
            if not rest:
                os.unlink(name, dir_fd=upper)
            return
        inner = os.open(name, LIST, dir_fd=upper)
        try:
            if rest:
                _prune(inner, below, rest)
            elif below is not None:
                os.fchmod(inner, stat.S_IMODE(os.fstat(below).st_mode))
            removable = not is_opaque(inner) and (not rest or (below is not None and _same_mode(inner, below)))
        finally:
            os.close(inner)
        if removable:
            # What else was changed in it stays.
            with suppress(OSError):
                os.rmdir(name, dir_fd=upper)
    finally:
        if below is not None:
            os.close(below)


def _spell_out(upper: int, lower: int) -> None:
    """Make an opaque directory an ordinary one that hides the same: deleted entries one by one, and opaque directories in it."""
    names = {*os.listdir(upper)}
    for name in os.listdir(lower):
        if name not in names:
            os.mknod(name, 0o600 | stat.S_IFCHR, 0, dir_fd=upper)
    for name in names:
        status, old = _status(upper, name), _status(lower, name)
        if status is not None and old is not None and stat.S_ISDIR(status.st_mode) and stat.S_ISDIR(old.st_mode):
            inner = os.open(name, LIST, dir_fd=upper)
            try:
                os.setxattr(inner, _OPAQUE, b"y")
            finally:
                os.close(inner)
    os.removexattr(upper, _OPAQUE)


def _reopen(upper: int, name: str, below: int) -> os.stat_result:
    """Put a directory in the place of an entry that says that the project's is deleted; it hides the same."""
    os.unlink(name, dir_fd=upper)
    os.mkdir(name, 0o700, dir_fd=upper)
    inner = os.open(name, LIST, dir_fd=upper)
    try:
        for each in os.listdir(below):
            os.mknod(each, 0o600 | stat.S_IFCHR, 0, dir_fd=inner)
        status = os.fstat(below)
        if os.geteuid() == 0:
            os.fchown(inner, status.st_uid, status.st_gid)
        os.fchmod(inner, stat.S_IMODE(status.st_mode))
    finally:
        os.close(inner)
    return os.stat(name, dir_fd=upper, follow_symlinks=False)


def _same_mode(one: int, other: int) -> bool:
    return stat.S_IMODE(os.fstat(one).st_mode) == stat.S_IMODE(os.fstat(other).st_mode)


def _status(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _opened(spot: Spot) -> int | None:
    """Open a directory of the project, unless it is none."""
    try:
        return os.open(spot[1], LIST, dir_fd=spot[0])
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError:
        return None
