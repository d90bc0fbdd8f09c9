"""Searches directories: for files by name, and for things that run later although their names do not show it."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from curtainwall.facts.paths import DEEPEST
from curtainwall.model import is_beneath, is_git_directory, on_disk, record, runs_later

MOST_NAMES: Final = 500_000
"""How many names we look at before giving up, which takes about half a second."""

_BATCH: Final = 10_000
# A bundle of all public certificate authorities is a quarter of this.
_MAX_PUBLIC_BYTES: Final = 1 << 20
# The settings in which npm keeps credentials: `_auth`, `_authToken`, `_password`, `key`.
_NPMRC_CREDENTIALS: Final = (b"_auth", b"_password", b"key")
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@record
class NamedFiles:
    """The first file of each wanted name; `missed` says why there may be others, or is empty."""

    paths: Mapping[str, str]
    missed: str = ""


def find_named(root: str, is_wanted: Callable[[str], bool], most: int = MOST_NAMES) -> NamedFiles:
    """Search for files by their paths, without following links."""
    paths: dict[str, str] = {}
    pending, remaining, missed = [root], most, ""
    while pending:
        directory = pending.pop()
        try:
            for names in _batches(directory):
                # Directories cost as much as files.
                remaining -= len(names)
                for name, is_directory in names:
                    if is_directory:
                        pending.append(f"{directory}/{name}")
                    elif name not in paths and is_wanted(path := f"{directory}/{name}"):
                        paths[name] = path
                if remaining < 0:
                    return NamedFiles(paths, f"it holds more than {most:,} names")
        except (PermissionError, FileNotFoundError, NotADirectoryError):
            # A file that we cannot open cannot be read through us either, and one that is gone does not matter.
            continue
        except OSError as fault:
            missed = f"not all of it can be read ({os.strerror(fault.errno or 0).lower()})"
    return NamedFiles(paths, missed)


def is_without_key(path: str) -> bool:
    """Tell whether a file with a secret-looking name certainly holds no key or password, such as a certificate or harmless settings."""
    name = path.rpartition("/")[2].casefold()
    if not name.endswith((".pem", ".asc", ".npmrc")):
        return False
    try:
        with open(os.open(on_disk(path), _OPEN), "rb") as file:
            content = file.read(_MAX_PUBLIC_BYTES + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return False
    if content is None or len(content) > _MAX_PUBLIC_BYTES:
        return False
    if name.endswith(".npmrc"):
        return not any(word in content.lower() for word in _NPMRC_CREDENTIALS)
    return b"-----BEGIN" in content and b"PRIVATE KEY" not in content


def _batches(directory: str) -> Iterator[list[tuple[str, bool]]]:
    """Yield the entries of a directory in batches, so that they always fit into memory."""
    with os.scandir(on_disk(directory)) as entries:
        while names := [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _BATCH)]:
            yield names


MOST_LOOKED_AT: Final = 5_000
"""How many entries of a directory we look at before we assume that it holds something that runs later."""

_HEAD = "HEAD"
# Next to a HEAD, these make git treat a directory as a repository and run what its config says.
_REPOSITORY_ENTRIES = ("objects", "refs", "commondir")


def writes_what_runs(path: str, workspace: str) -> bool:
    """Tell whether writing a canonical path changes a git directory, or turns a directory into one.

    A git directory always has a HEAD. So writing a HEAD counts even alone: otherwise two simultaneous calls, each harmless when checked,
    could create a git directory together. As with names, only the part of the path below the workspace counts.
    """
    start = len(workspace.rstrip("/")) if is_beneath(path, workspace) else 0
    directory = path[:start]
    for name in path[start:].split("/"):
        if not name:
            continue
        if name == _HEAD or _is_git_directory(directory, name.casefold()):
            return True
        directory = f"{directory}/{name}"
    return directory != path[:start] and _is_git_directory(directory, "")


def holds_what_runs(path: str) -> bool:
    """Tell whether a directory that is deleted or moved as a whole holds something that runs later; a link is not followed."""
    if os.path.islink(on_disk(path)):
        return False
    pending, seen = [path], 0
    while pending:
        directory = pending.pop()
        if directory.count("/") > DEEPEST:
            return True
        try:
            with os.scandir(on_disk(directory)) as listing:
                entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(listing, MOST_LOOKED_AT + 1)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return True
        seen += len(entries)
        names = {name for name, _ in entries}
        if seen > MOST_LOOKED_AT or is_git_directory(names) or any(runs_later(f"/{name}", "/") for name in names):
            return True
        pending += (f"{directory}/{name}" for name, is_directory in entries if is_directory)
    return False


def _is_git_directory(directory: str, new_name: str) -> bool:
    """Tell whether git treats a directory as a repository, or would with one more entry; at most two system calls if it does not."""
    names = {name for name in (_HEAD, "commondir") if os.path.lexists(on_disk(f"{directory}/{name}"))}
    if new_name == _HEAD.casefold():
        names.add(_HEAD)
    if _HEAD in names:
        if new_name in _REPOSITORY_ENTRIES:
            return True
        names |= {name for name in ("objects", "refs") if os.path.lexists(on_disk(f"{directory}/{name}"))}
    return is_git_directory(names)
