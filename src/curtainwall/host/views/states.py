"""Reads what is at a path, by descriptor and without following a link: kind, digest, mode, and what is odd about it."""

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import Final

from curtainwall.host.files.beneath import LinkInTheWay, open_directory_above
from curtainwall.host.files.contents import leads_out
from curtainwall.host.views.sealed import SealedContents
from curtainwall.model import FileKind, FileState, PresentFile

_CHUNK: Final = 1024 * 1024
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a directory is opened to be listed."""
_FILE_MODE: Final = 0o7777
_DIRECTORY_MODE: Final = 0o777
"""A directory that is made in one with setgid gets that bit from the kernel, so it is not the agent's."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """What is at a path. `changed` is when its inode last changed, in nanoseconds; `fault` says why it cannot be read."""

    state: FileState
    changed: int = 0
    is_binary: bool = False
    is_hard_linked: bool = False
    leads_out: bool = False
    fault: str = ""


def read_entry(directory: int, name: str, sealed: SealedContents | None = None, depth: int = 0) -> DirectoryEntry | None:
    """Return what a directory has under a name, or None; put its contents aside if there is a place for them."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return _read(directory, name, status, sealed, depth)
    except FileNotFoundError:
        return None
    except OSError as fault:
        state = FileState(kind=kind_of(status), mode=mode_of(status), size=status.st_size)
        return DirectoryEntry(state, status.st_ctime_ns, fault=(fault.strerror or "it cannot be read").lower())


def _read(directory: int, name: str, status: os.stat_result, sealed: SealedContents | None, depth: int) -> DirectoryEntry:
    kind = kind_of(status)
    if kind is FileKind.LINK:
        target = os.readlink(name, dir_fd=directory)
        content = os.fsencode(target)
        digest = hashlib.sha256(content).hexdigest() if sealed is None else sealed.keep_bytes(content).digest
        state = FileState(kind=kind, digest=digest, size=len(content))
        return DirectoryEntry(state, status.st_ctime_ns, leads_out=leads_out(target, depth))
    if kind is not FileKind.FILE:
        return DirectoryEntry(FileState(kind=kind, mode=mode_of(status)), status.st_ctime_ns)
    opened = os.open(name, _READ, dir_fd=directory)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            return DirectoryEntry(FileState(kind=kind_of(status), mode=mode_of(status)), status.st_ctime_ns)
        kept = None if sealed is None else sealed.keep(opened)
        digest, size = digest_of(opened) if kept is None else (kept.digest, kept.size)
        state = FileState(kind=kind, digest=digest, mode=mode_of(status), size=size)
        return DirectoryEntry(state, status.st_ctime_ns, kept is not None and kept.is_binary, status.st_nlink > 1)
    finally:
        os.close(opened)


def read_present(path: str, sealed: SealedContents) -> PresentFile | None:
    """Return what is at a canonical path, with its contents put aside; None if nothing is, or if a link is in the path by now."""
    try:
        with open_directory_above(path) as (parent, name):
            entry = read_entry(parent, name, sealed)
            if entry is None:
                return None
            names: tuple[str, ...] = ()
            if entry.state.kind is FileKind.DIRECTORY:
                opened = os.open(name, LIST, dir_fd=parent)
                try:
                    names = tuple(os.listdir(opened))
                finally:
                    os.close(opened)
    except (FileNotFoundError, NotADirectoryError, LinkInTheWay):
        return None
    except OSError as fault:
        return PresentFile(state=FileState(kind=FileKind.OTHER), fault=(fault.strerror or "it cannot be read").lower())
    return PresentFile(state=entry.state, names=names, is_binary=entry.is_binary, is_hard_linked=entry.is_hard_linked, fault=entry.fault)


def is_in_state(spot: tuple[int, str], state: FileState | None) -> bool:
    """Tell whether a directory has a regular file of one name in exactly this state under a name; its bytes are read only if it may be."""
    status = _status_of_file(spot)
    if status is None or state is None or state.kind is not FileKind.FILE or (state.size, state.mode) != (status.st_size, mode_of(status)):
        return False
    entry = read_entry(*spot)
    return entry is not None and entry.state == state


def read_alike(one: tuple[int, str], other: tuple[int, str]) -> FileState | None:
    """Return the state of two regular files, each of one name, if it is the same."""
    first, second = _status_of_file(one), _status_of_file(other)
    if first is None or second is None or (first.st_size, mode_of(first)) != (second.st_size, mode_of(second)):
        return None
    entry = read_entry(*one)
    return entry.state if entry is not None and not entry.fault and is_in_state(other, entry.state) else None


def _status_of_file(spot: tuple[int, str]) -> os.stat_result | None:
    try:
        status = os.stat(spot[1], dir_fd=spot[0], follow_symlinks=False)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else None


def digest_of(opened: int) -> tuple[str, int]:
    """Return the digest and the size of what an open file holds."""
    digest, size = hashlib.sha256(), 0
    while piece := os.read(opened, _CHUNK):
        digest.update(piece)
        size += len(piece)
    return digest.hexdigest(), size


def kind_of(status: os.stat_result) -> FileKind:
    """Return what something is."""
    if stat.S_ISREG(status.st_mode):
        return FileKind.FILE
    if stat.S_ISDIR(status.st_mode):
        return FileKind.DIRECTORY
    return FileKind.LINK if stat.S_ISLNK(status.st_mode) else FileKind.OTHER


def mode_of(status: os.stat_result) -> int:
    """Return the part of the mode that counts as a change."""
    if stat.S_ISREG(status.st_mode):
        return status.st_mode & _FILE_MODE
    return status.st_mode & _DIRECTORY_MODE if stat.S_ISDIR(status.st_mode) else 0
