"""The contents of a path, read by descriptor: a digest over all of them, and a move that delivers exactly the contents with that digest."""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final, Literal

from curtainwall.host.files.beneath import FileOwner, give, is_there, open_directory_above, owner_of, rename_if_free, sync_file_system
from curtainwall.model import record

MAX_DEPTH: Final = 48

Kind = Literal["file", "directory", "link", "nothing"]

_CHUNK: Final = 1024 * 1024
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS: Final = 0o777

_TOO_BIG: Final = "it holds too many files or bytes"
_SPECIAL: Final = "it is, or holds, something besides files, directories and links"
_LEADS_OUT: Final = "a link in it leads out of it"

# Which file an entry was when it was read; a file has changed if its size or modification time differs.
_Identity = tuple[int, ...]
_Target = tuple[int, str]


class Unbound(Exception):
    """The contents cannot be bound to a digest; the message says why, and can follow a path and a colon."""

    @property
    def is_special(self) -> bool:
        """Whether a named pipe, a socket or a device is the reason."""
        return self.args == (_SPECIAL,)


class ContentsChanged(Exception):
    """The contents do not have the expected digest."""


@record
class Extent:
    """The most that is read. With `closed`, a link in a directory must not lead out of that directory."""

    entries: int
    size: int
    closed: bool = False


@record
class Contents:
    """The content at a path. The digest covers names, kinds, permissions, the targets of links, and every byte."""

    kind: Kind
    digest: str
    files: int = 0
    size: int = 0
    target: str = ""


def read_contents(path: str, extent: Extent) -> Contents:
    """Return what is at a canonical path, which need not exist; raise `Unbound` or `OSError`."""
    try:
        with open_directory_above(path) as (directory, name):
            return _Pass(extent).read(directory, name, None)
    except FileNotFoundError:
        return Contents("nothing", hashlib.sha256(b"nothing").hexdigest())


def move_contents(source: str, destination: str, digest: str, extent: Extent) -> bool:
    """Move exactly the contents with this digest to a free path; tell whether nothing was left behind.

    INVARIANT: the bytes that arrive are the bytes that were read for the digest. They are copied, so a process that still has the old file
    open, or another name for it, cannot change the destination; and a destination on another disk works the same way.
    """
    if destination == source or destination.startswith(f"{source}/"):
        raise OSError(errno.EINVAL, "a directory cannot be moved into itself", source)
    with open_directory_above(source) as (old, old_name), open_directory_above(destination) as (new, new_name):
        if is_there(new, new_name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), destination)
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=old):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), source)
        contents_pass, draft = _Pass(extent, owner_of(new)), f".{new_name[:40]}.{secrets.token_hex(8)}.draft"
        try:
            if contents_pass.read(old, old_name, (new, draft)).digest != digest:
                raise ContentsChanged(source)
            sync_file_system(new)
            rename_if_free(new, draft, new, new_name)
        except BaseException:
            with suppress(OSError):
                _remove(new, draft)
            raise
        os.fsync(new)
        try:
            return _remove(old, old_name, contents_pass.identities)
        except OSError:
            return False


class _Pass:
    """One pass over the contents, which can copy them on the way and give the copy to an owner."""

    def __init__(self, extent: Extent, owner: FileOwner | None = None) -> None:
        self.extent = extent
        self._owner = owner
        self.identities: dict[str, _Identity] = {}
        self._digest = hashlib.sha256()
        self._files = 0
        self._size = 0

    def read(self, directory: int, name: str, target: _Target | None) -> Contents:
        """Read a directory entry, and copy it if a target is given."""
        kind, link_target = self._read_entry(directory, name, "", 0, target)
        return Contents(kind, self._digest.hexdigest(), self._files, self._size, link_target)

    def _read_entry(self, directory: int, name: str, inner_path: str, depth: int, target: _Target | None) -> tuple[Kind, str]:
        if len(self.identities) >= self.extent.entries or depth > MAX_DEPTH:
            raise Unbound(_TOO_BIG)
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            self.identities[inner_path] = _identity(status)
            return "link", self._read_link(directory, name, inner_path, depth, target)
        if stat.S_ISDIR(status.st_mode):
            with _opened(os.open(name, _LIST, dir_fd=directory)) as opened:
                self.identities[inner_path] = _identity(os.fstat(opened))
                self._read_directory(opened, inner_path, depth, target)
            return "directory", ""
        if not stat.S_ISREG(status.st_mode):
            raise Unbound(_SPECIAL)
        with _opened(os.open(name, _READ, dir_fd=directory)) as opened:
            self.identities[inner_path] = _identity(os.fstat(opened))
            self._read_file(opened, inner_path, target)
        return "file", ""

    def _read_link(self, directory: int, name: str, inner_path: str, depth: int, target: _Target | None) -> str:
        link_target = os.readlink(name, dir_fd=directory)
        if self.extent.closed and depth and leads_out(link_target, depth - 1):
            raise Unbound(_LEADS_OUT)
        self._add_to_digest("link", inner_path, os.fsencode(link_target))
        if target is not None:
            os.symlink(link_target, target[1], dir_fd=target[0])
        return link_target

    def _read_directory(self, opened: int, inner_path: str, depth: int, target: _Target | None) -> None:
        mode = stat.S_IMODE(os.fstat(opened).st_mode)
        self._add_to_digest("directory", inner_path, mode)
        names = _names(opened, self.extent.entries)
        if target is None:
            for name in names:
                self._read_entry(opened, name, f"{inner_path}/{name}", depth + 1, None)
            return
        os.mkdir(target[1], 0o700, dir_fd=target[0])
        with _opened(os.open(target[1], _LIST, dir_fd=target[0])) as made:
            for name in names:
                self._read_entry(opened, name, f"{inner_path}/{name}", depth + 1, (made, name))
            os.fchmod(made, mode & _PERMISSIONS)
            give(made, self._owner)

    def _read_file(self, opened: int, inner_path: str, target: _Target | None) -> None:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise Unbound(_SPECIAL)
        if target is None:
            digest = self._copy_bytes(opened, None)
        else:
            with _opened(os.open(target[1], _CREATE, 0o600, dir_fd=target[0])) as made:
                digest = self._copy_bytes(opened, made)
                os.fchmod(made, status.st_mode & _PERMISSIONS)
                give(made, self._owner)
                os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))
        self._files += 1
        self._add_to_digest("file", inner_path, stat.S_IMODE(status.st_mode), digest)

    def _copy_bytes(self, opened: int, made: int | None) -> str:
        digest = hashlib.sha256()
        while piece := os.read(opened, _CHUNK):
            self._size += len(piece)
            if self._size > self.extent.size:
                raise Unbound(_TOO_BIG)
            digest.update(piece)
            while made is not None and piece:
                piece = piece[os.write(made, piece) :]
        return digest.hexdigest()

    def _add_to_digest(self, kind: str, inner_path: str, *facts: int | str | bytes) -> None:
        # Each line is the repr of one tuple, so two different trees never produce the same text.
        self._digest.update(f"{(kind, os.fsencode(inner_path), *facts)!r}\n".encode())


def _names(directory: int, limit: int) -> list[str]:
    names: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(names) >= limit:
                raise Unbound(_TOO_BIG)
            names.append(entry.name)
    return sorted(names)


def leads_out(target: str, depth: int) -> bool:
    """Tell whether a link in a directory at this depth could lead out of the tree, assuming that no other link there does."""
    names = [name for name in target.split("/") if name not in {"", "."}]
    up = next((place for place, name in enumerate(names) if name != ".."), len(names))
    # A `..` after a name may follow a link, and then we cannot tell from here where it leads.
    return target.startswith("/") or up > depth or ".." in names[up:]


def _remove(directory: int, name: str, identities: dict[str, _Identity] | None = None, inner_path: str = "") -> bool:
    """Delete an entry and everything beneath it without following links; with identities, only what is unchanged since it was read."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if identities is not None and identities.get(inner_path) != _identity(status):
        return False
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=directory)
        return True
    with _opened(os.open(name, _LIST, dir_fd=directory)) as opened:
        if identities is None:
            os.fchmod(opened, 0o700)
        removed = [_remove(opened, each, identities, f"{inner_path}/{each}") for each in os.listdir(opened)]
    if not all(removed):
        return False
    os.rmdir(name, dir_fd=directory)
    return True


def _identity(status: os.stat_result) -> _Identity:
    if stat.S_ISDIR(status.st_mode):
        return (status.st_dev, status.st_ino)
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@contextmanager
def _opened(descriptor: int) -> Generator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
