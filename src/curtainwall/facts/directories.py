"""What a directory holds: files looked for by their names, and what runs later by itself without saying so by its name."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from curtainwall.facts.paths import DEEPEST
from curtainwall.model import is_beneath, is_git_directory, runs_later

MOST_NAMES: Final = 500_000
"""How many names are looked at before the rest is given up: about half a second's worth."""

_AT_ONCE: Final = 10_000
# A bundle of all the world's certificates is a quarter of this.
_LONGEST_PUBLIC: Final = 1 << 20
# Under these npm keeps what lets it in: `_auth`, `_authToken`, `_password`, `key`.
_IN_NPMRC: Final = (b"_auth", b"_password", b"key")
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The first file of each wanted name, by its name; `missed` says in words why there may be others, or nothing."""

    found: Mapping[str, str]
    missed: str = ""


def find_named(root: str, is_wanted: Callable[[str], bool], most: int = MOST_NAMES) -> NamedFiles:
    """Look for files by their paths, without following links."""
    found: dict[str, str] = {}
    waiting, left, missed = [root], most, ""
    while waiting:
        here = waiting.pop()
        try:
            for names in _portions(here):
                # Directories cost as much as files.
                left -= len(names)
                for name, is_directory in names:
                    if is_directory:
                        waiting.append(f"{here}/{name}")
                    elif name not in found and is_wanted(path := f"{here}/{name}"):
                        found[name] = path
                if left < 0:
                    return NamedFiles(found, f"it holds more than {most:,} names")
        except (PermissionError, FileNotFoundError, NotADirectoryError):
            # What is closed to us is closed to whoever is let in by us, and what is gone is gone.
            continue
        except OSError as fault:
            missed = f"not all of it can be read ({os.strerror(fault.errno or 0).lower()})"
    return NamedFiles(found, missed)


def is_without_key(path: str) -> bool:
    """Tell whether a file of such a name is known to hold neither key nor password: certificates and settings are named like that, too."""
    name = path.rpartition("/")[2].casefold()
    if not name.endswith((".pem", ".asc", ".npmrc")):
        return False
    try:
        with open(os.open(path, _OPEN), "rb") as file:
            content = file.read(_LONGEST_PUBLIC + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return False
    if content is None or len(content) > _LONGEST_PUBLIC:
        return False
    if name.endswith(".npmrc"):
        return not any(word in content.lower() for word in _IN_NPMRC)
    return b"-----BEGIN" in content and b"PRIVATE KEY" not in content


def _portions(directory: str) -> Iterator[list[tuple[str, bool]]]:
    """Yield what a directory holds, never more at once than fits into memory."""
    with os.scandir(directory) as entries:
        while names := [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _AT_ONCE)]:
            yield names


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
