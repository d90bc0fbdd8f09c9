"""What runs later by itself and does not say so by its name: git directories of any name, and what a directory holds."""

import os
from itertools import islice
from typing import Final

from curtainwall.facts.paths import DEEPEST
from curtainwall.model import is_beneath, is_git_directory, runs_later

MOST_LOOKED_AT: Final = 5_000
"""How many entries of a directory are looked at before it is taken for one that holds what runs later."""

_HEAD = "HEAD"
# Beside a HEAD, these make git take a directory for a repository, and run what its config says.
_MAKING = ("objects", "refs", "commondir")


def writes_what_runs(path: str, workspace: str) -> bool:
    """Tell whether a change of a canonical path is made in a directory that git takes for its own, or makes one of it.

    No directory is git's without a HEAD. So a HEAD counts by itself: otherwise two calls at once, each innocent when it is looked at, would
    make one together. As with names, only what lies below the workspace counts in it.
    """
    start = len(workspace.rstrip("/")) if is_beneath(path, workspace) else 0
    here = path[:start]
    for name in path[start:].split("/"):
        if not name:
            continue
        if name == _HEAD or _is_gits(here, name.casefold()):
            return True
        here = f"{here}/{name}"
    return here != path[:start] and _is_gits(here, "")


def holds_what_runs(path: str) -> bool:
    """Tell whether a directory, which goes away or elsewhere as a whole, holds what runs later by itself; a link is what it is."""
    if os.path.islink(path):
        return False
    waiting, seen = [path], 0
    while waiting:
        here = waiting.pop()
        if here.count("/") > DEEPEST:
            return True
        try:
            with os.scandir(here) as listing:
                entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(listing, MOST_LOOKED_AT + 1)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return True
        seen += len(entries)
        names = {name for name, _ in entries}
        if seen > MOST_LOOKED_AT or is_git_directory(names) or any(runs_later(f"/{name}", "/") for name in names):
            return True
        waiting += (f"{here}/{name}" for name, is_directory in entries if is_directory)
    return False


def _is_gits(directory: str, coming: str) -> bool:
    """Tell whether git takes a directory for a repository, or might with one name more; two syscalls at the most where it does not."""
    names = {name for name in (_HEAD, "commondir") if os.path.lexists(f"{directory}/{name}")}
    if coming == _HEAD.casefold():
        names.add(_HEAD)
    if _HEAD in names:
        if coming in _MAKING:
            return True
        names |= {name for name in ("objects", "refs") if os.path.lexists(f"{directory}/{name}")}
    return is_git_directory(names)
