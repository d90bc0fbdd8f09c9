"""Finds the files of a workspace that changed since a moment, so that people learn what an agent did there with its own tools."""

import os
import stat
from pathlib import Path
from typing import Final

MOST_LISTED: Final = 200
"""How many changed files are listed; more are only counted."""

_MOST_ENTRIES: Final = 100_000
_DEEPEST: Final = 40
_LONGEST_PATH: Final = 1_000
# A commit changes many files in here, and none that a person would look at.
_SKIPPED: Final = frozenset({".git"})


def disk_time(path: Path) -> int:
    """Return when a file was last changed by the disk's clock, in nanoseconds; an agent cannot set that time."""
    return path.lstat().st_ctime_ns


def find_changes(workspace: Path, since: int) -> tuple[list[str], int]:
    """Return the changed files below a workspace, relative to it, and how many more there are that are not listed.

    Links are not followed, and what lies too deep, or comes after very many entries, is not looked at.
    """
    changed, more, entries = list[str](), 0, 0
    for directory, names, files, at in os.fwalk(workspace, follow_symlinks=False):
        relative = os.path.relpath(directory, workspace)
        is_too_deep = relative.count("/") >= _DEEPEST or len(relative) > _LONGEST_PATH
        entries += len(names) + len(files)
        # A link to a directory is listed among the directories.
        candidates = sorted((*files, *names))
        names[:] = [] if is_too_deep else sorted(name for name in names if name not in _SKIPPED)
        for name in candidates:
            if not _has_changed(name, at, since):
                continue
            if len(changed) < MOST_LISTED:
                changed.append(_printable(os.path.normpath(os.path.join(relative, name))))
            else:
                more += 1
        if entries > _MOST_ENTRIES:
            break
    return changed, more


def _has_changed(name: str, at: int, since: int) -> bool:
    try:
        about = os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError:
        return False
    return about.st_ctime_ns >= since and (stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode))


def _printable(path: str) -> str:
    """Return a path that can be stored; a name that is not UTF-8 holds surrogates."""
    return path.encode("utf-8", "replace").decode()
