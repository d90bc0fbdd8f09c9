"""The contents of a path, read by descriptor: a digest over all of it, and a move that delivers exactly what has that digest."""

import ctypes
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal

from curtainwall.host.files.beneath import FileOwner, give, is_there, open_directory_above, owner_of, rename_if_free

MAX_DEPTH: Final = 48

Kind = Literal["file", "directory", "link", "nothing"]

_CHUNK: Final = 1024 * 1024
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BITS: Final = 0o777

_TOO_MUCH: Final = "it holds too many files or bytes"
_SPECIAL: Final = "it is, or holds, something besides files, directories and links"
_LEADS_OUT: Final = "a link in it leads out of it"

_libc = ctypes.CDLL(None, use_errno=True)

# What an entry was when it was read; a file counts as changed when its size or time is another.
_Identity = tuple[int, ...]
_Target = tuple[int, str]


class Unbound(Exception):
    """The contents cannot be bound to a digest; the message says why, and can follow a path and a colon."""

    @property
    def is_special(self) -> bool:
        """Whether a named pipe, a socket or a device is the reason."""
        return self.args == (_SPECIAL,)


class ContentsChanged(Exception):
    """The contents are not those that the digest is of."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is read at most. With `closed`, a link in a directory must not lead out of that directory."""

    entries: int
    size: int
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Contents:
    """What is at a path. The digest covers names, kinds, permissions, the targets of links, and every byte."""

    kind: Kind
    digest: str
    files: int = 0
    size: int = 0
    target: str = ""


def read_contents(path: str, extent: Extent) -> Contents:
    """Return what is at a canonical path, where nothing may be; raise `Unbound` or `OSError`."""
    try:
        with open_directory_above(path) as (directory, name):
            return _Reading(extent).read(directory, name, None)
    except FileNotFoundError:
        return Contents("nothing", hashlib.sha256(b"nothing").hexdigest())


def move_contents(source: str, destination: str, digest: str, extent: Extent) -> bool:
    """Move exactly what has this digest to where nothing is yet; say whether nothing was left behind.

    INVARIANT: the bytes that arrive are the bytes that were read for the digest. They are copied, so whoever still has the old file open,
    or a second name for it, changes nothing at the destination; and a destination on another disk is no other case.
    """
    if destination == source or destination.startswith(f"{source}/"):
        raise OSError(errno.EINVAL, "a directory cannot be moved into itself", source)
    with open_directory_above(source) as (old, old_name), open_directory_above(destination) as (new, new_name):
        if is_there(new, new_name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), destination)
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=old):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), source)
        reading, draft = _Reading(extent, owner_of(new)), f".{new_name[:40]}.{secrets.token_hex(8)}.draft"
        try:
            if reading.read(old, old_name, (new, draft)).digest != digest:
                raise ContentsChanged(source)
            _sync(new)
            rename_if_free(new, draft, new, new_name)
        except BaseException:
            with suppress(OSError):
                _remove(new, draft)
            raise
        os.fsync(new)
        try:
            return _remove(old, old_name, reading.identities)
        except OSError:
            return False


class _Reading:
    """One pass over the contents, which may copy them on the way, for an owner."""

    def __init__(self, extent: Extent, owner: FileOwner | None = None) -> None:
        self.extent = extent
        self._owner = owner
        self.identities: dict[str, _Identity] = {}
        self._digest = hashlib.sha256()
        self._files = 0
        self._size = 0

    def read(self, directory: int, name: str, target: _Target | None) -> Contents:
        """Read an entry of a directory, and copy it where a target is given."""
        kind, leads = self._take(directory, name, "", 0, target)
        return Contents(kind, self._digest.hexdigest(), self._files, self._size, leads)

    def _take(self, directory: int, name: str, inner: str, depth: int, target: _Target | None) -> tuple[Kind, str]:
        if len(self.identities) >= self.extent.entries or depth > MAX_DEPTH:
            raise Unbound(_TOO_MUCH)
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            self.identities[inner] = _identity(found)
            return "link", self._take_link(directory, name, inner, depth, target)
        if stat.S_ISDIR(found.st_mode):
            with _opened(os.open(name, _LIST, dir_fd=directory)) as opened:
                self.identities[inner] = _identity(os.fstat(opened))
                self._take_directory(opened, inner, depth, target)
            return "directory", ""
        if not stat.S_ISREG(found.st_mode):
            raise Unbound(_SPECIAL)
        with _opened(os.open(name, _READ, dir_fd=directory)) as opened:
            self.identities[inner] = _identity(os.fstat(opened))
            self._take_file(opened, inner, target)
        return "file", ""

    def _take_link(self, directory: int, name: str, inner: str, depth: int, target: _Target | None) -> str:
        leads = os.readlink(name, dir_fd=directory)
        if self.extent.closed and depth and _leads_out(leads, depth - 1):
            raise Unbound(_LEADS_OUT)
        self._note("link", inner, os.fsencode(leads))
        if target is not None:
            os.symlink(leads, target[1], dir_fd=target[0])
        return leads

    def _take_directory(self, opened: int, inner: str, depth: int, target: _Target | None) -> None:
        mode = stat.S_IMODE(os.fstat(opened).st_mode)
        self._note("directory", inner, mode)
        names = _names(opened, self.extent.entries)
        if target is None:
            for name in names:
                self._take(opened, name, f"{inner}/{name}", depth + 1, None)
            return
        os.mkdir(target[1], 0o700, dir_fd=target[0])
        with _opened(os.open(target[1], _LIST, dir_fd=target[0])) as made:
            for name in names:
                self._take(opened, name, f"{inner}/{name}", depth + 1, (made, name))
            os.fchmod(made, mode & _BITS)
            give(made, self._owner)

    def _take_file(self, opened: int, inner: str, target: _Target | None) -> None:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise Unbound(_SPECIAL)
        if target is None:
            digest = self._pour(opened, None)
        else:
            with _opened(os.open(target[1], _MAKE, 0o600, dir_fd=target[0])) as made:
                digest = self._pour(opened, made)
                os.fchmod(made, found.st_mode & _BITS)
                give(made, self._owner)
                os.utime(made, ns=(found.st_atime_ns, found.st_mtime_ns))
        self._files += 1
        self._note("file", inner, stat.S_IMODE(found.st_mode), digest)

    def _pour(self, opened: int, made: int | None) -> str:
        digest = hashlib.sha256()
        while piece := os.read(opened, _CHUNK):
            self._size += len(piece)
            if self._size > self.extent.size:
                raise Unbound(_TOO_MUCH)
            digest.update(piece)
            while made is not None and piece:
                piece = piece[os.write(made, piece) :]
        return digest.hexdigest()

    def _note(self, kind: str, inner: str, *facts: int | str | bytes) -> None:
        # Each line is the spelling of one tuple, so no two trees are written down alike.
        self._digest.update(f"{(kind, os.fsencode(inner), *facts)!r}\n".encode())


def _names(directory: int, most: int) -> list[str]:
    names: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(names) >= most:
                raise Unbound(_TOO_MUCH)
            names.append(entry.name)
    return sorted(names)


def _leads_out(target: str, depth: int) -> bool:
    """Tell whether a link in a directory this deep could lead out of the tree, given that no other link there does."""
    names = [name for name in target.split("/") if name not in {"", "."}]
    up = next((place for place, name in enumerate(names) if name != ".."), len(names))
    # A `..` behind a name may stand behind a link, and then nobody can say from here where it goes.
    return target.startswith("/") or up > depth or ".." in names[up:]


def _remove(directory: int, name: str, identities: dict[str, _Identity] | None = None, inner: str = "") -> bool:
    """Delete an entry and all beneath it, of which nothing is followed; with identities, only what is still as it was read."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if identities is not None and identities.get(inner) != _identity(found):
        return False
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=directory)
        return True
    with _opened(os.open(name, _LIST, dir_fd=directory)) as opened:
        if identities is None:
            os.fchmod(opened, 0o700)
        emptied = [_remove(opened, each, identities, f"{inner}/{each}") for each in os.listdir(opened)]
    if not all(emptied):
        return False
    os.rmdir(name, dir_fd=directory)
    return True


def _identity(found: os.stat_result) -> _Identity:
    if stat.S_ISDIR(found.st_mode):
        return (found.st_dev, found.st_ino)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _sync(directory: int) -> None:
    """Have everything that was written beside a directory on the disk before the original is deleted."""
    if _libc.syncfs(ctypes.c_int(directory)) != 0:
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault))


@contextmanager
def _opened(descriptor: int) -> Generator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
