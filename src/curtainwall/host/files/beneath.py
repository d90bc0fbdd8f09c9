"""Opens and changes files by descriptor along a canonical path, without following a link anywhere.

A canonical path was judged with all its links resolved. If someone puts a link into it afterwards, the call fails instead of using another
file.

While a call works on a view of a project, every path beneath the project is opened in the view, by the same rules.
"""

import ctypes
import errno
import os
import secrets
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from curtainwall.model import inside_view, record


@record
class FileOwner:
    """A user and a group of this machine."""

    user: int
    group: int


def owner_of(opened: int) -> FileOwner | None:
    """Return who owns an open directory; None if that is us, or if we could not change an owner."""
    if os.geteuid() != 0:
        return None
    status = os.fstat(opened)
    return FileOwner(status.st_uid, status.st_gid) if status.st_uid else None


def give(opened: int, owner: FileOwner | None) -> None:
    """Give a file or directory that we created, and have open, to its owner."""
    if owner is not None:
        os.fchown(opened, owner.user, owner.group)


def hand_over(top: str | os.PathLike[str], owner: FileOwner) -> None:
    """Change the owner of a directory and of everything of root's beneath it, without following links."""
    for _, directories, files, at in os.fwalk(top, follow_symlinks=False):
        for name in (*directories, *files):
            if os.stat(name, dir_fd=at, follow_symlinks=False).st_uid == 0:
                os.chown(name, owner.user, owner.group, dir_fd=at, follow_symlinks=False)
    if os.stat(top).st_uid == 0:
        os.chown(top, owner.user, owner.group)


_OPENAT2: Final = 437  # the same number on every architecture
_RENAMEAT2: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276}.get(os.uname().machine)
_NO_REPLACE: Final = 1
_EXCHANGE: Final = 2
# RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH
_RESOLVE: Final = 0x02 | 0x04 | 0x08
_WALK: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MISSING_CALL: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL})
_TRIES: Final = 16

_libc = ctypes.CDLL(None, use_errno=True)


class LinkInTheWay(OSError):
    """A link is in the path that was not there when the path was judged."""


def open_beneath(path: str, flags: int, *, by_walking: bool = False) -> int:
    """Return a descriptor for a canonical path; raise `LinkInTheWay` if any component is a link."""
    with _start(path) as (start, names):
        if not by_walking:
            opened = _openat2(start, "/".join(names) or ".", flags | os.O_CLOEXEC, path)
            if opened is not None:
                return opened
        return _walk(start, names, flags | os.O_CLOEXEC, path)


@contextmanager
def open_directory_above(path: str) -> Generator[tuple[int, str]]:
    """Yield a descriptor of the directory that holds a canonical path's last component, and that component's name."""
    above, _, name = path.rpartition("/")
    if not name:
        raise IsADirectoryError(errno.EISDIR, "the root directory is in no other", path)
    inside = inside_view(path)
    if inside is not None and not inside[1]:
        # INVARIANT: the directory above a view is that of the project itself, where nothing is changed.
        raise OSError(errno.EBUSY, "it is the project itself, which stays as it is in review mode", path)
    directory = open_beneath(above or "/", _DIRECTORY)
    try:
        yield directory, name
    finally:
        os.close(directory)


def replace_file(path: str, content: bytes, *, only_new: bool = False) -> None:
    """Replace a file's content atomically and durably: readers, and we after a crash, see the old or the new content. Keep the mode."""
    with open_directory_above(path) as (directory, name):
        old = _regular_or_missing(directory, name, path)
        if old is not None and only_new:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if old is not None and not os.access(name, os.W_OK, dir_fd=directory):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        draft = f".{name[:40]}.{secrets.token_hex(8)}.draft"
        made = os.open(
            draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666 if old is None else 0o600, dir_fd=directory
        )
        try:
            with open(made, "wb") as file:
                file.write(content)
                file.flush()
                if old is not None:
                    _keep_owner_and_mode(made, old)
                else:
                    give(made, owner_of(directory))
                os.fsync(made)
            if only_new:
                rename_if_free(directory, draft, directory, name)
            else:
                os.replace(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=directory)
            raise
        os.fsync(directory)


def make_directories(path: str) -> bool:
    """Create a directory and its missing parents; tell whether anything was created."""
    made = False
    with _start(path) as (start, names):
        here = os.dup(start)
    try:
        for name in names:
            is_new = False
            try:
                os.mkdir(name, 0o777, dir_fd=here)
                made = is_new = True
            except FileExistsError:
                pass
            except PermissionError:
                # A directory that we may not write to may already hold the next one.
                if not is_there(here, name):
                    raise
            except OSError as fault:
                if fault.errno != errno.EROFS or not is_there(here, name):
                    raise
            next_directory = _step(here, name, path)
            if is_new:
                _give_directory(next_directory, here)
            os.close(here)
            here = next_directory
    finally:
        os.close(here)
    return made


def delete_entry(path: str) -> None:
    """Delete a file or a link (not its target); never a directory."""
    with open_directory_above(path) as (directory, name):
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        os.unlink(name, dir_fd=directory)
        os.fsync(directory)


def move_entry(source: str, destination: str) -> None:
    """Rename a file, link or directory to a free path; raise `FileExistsError` if it is taken."""
    with open_directory_above(source) as (old, old_name), open_directory_above(destination) as (new, new_name):
        rename_if_free(old, old_name, new, new_name)
        os.fsync(new)
        os.fsync(old)


def _components(path: str) -> list[str]:
    names = path.split("/")[1:]
    if path == "/":
        return []
    if not path.startswith("/") or any(name in {"", ".", ".."} for name in names) or "\0" in path:
        raise ValueError(f"`{path[:120]!a}` is not canonical")
    return names


@contextmanager
def _start(path: str) -> Generator[tuple[int, list[str]]]:
    """Yield a descriptor of the directory that a canonical path starts in, the root or a view, and the names from there."""
    names = _components(path)
    inside = inside_view(path)
    if inside is not None:
        yield inside[0], inside[1].split("/") if inside[1] else []
        return
    root = os.open("/", _WALK)
    try:
        yield root, names
    finally:
        os.close(root)


def _openat2(start: int, relative: str, flags: int, path: str) -> int | None:
    """Return a descriptor, or None if the kernel (or a filter around us) does not offer the call."""
    how = b"".join(word.to_bytes(8, sys.byteorder) for word in (flags, 0, _RESOLVE))
    for _ in range(_TRIES):
        opened = _libc.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(start),
            ctypes.c_char_p(os.fsencode(relative)),
            ctypes.c_char_p(how),
            ctypes.c_size_t(24),
        )
        if opened >= 0:
            return int(opened)
        fault = ctypes.get_errno()
        # The kernel reports EAGAIN when something in the path was renamed during the look-up.
        if fault not in {errno.EAGAIN, errno.EINTR}:
            break
    else:
        raise LinkInTheWay(errno.EAGAIN, "the path keeps changing", path)
    if fault in _MISSING_CALL:
        return None
    if fault in {errno.ELOOP, errno.EXDEV}:
        raise LinkInTheWay(fault, "a link stands in the way", path)
    raise OSError(fault, os.strerror(fault), path)


def _walk(start: int, names: list[str], flags: int, path: str) -> int:
    if not names:
        return os.open(".", flags, dir_fd=start)
    here = os.dup(start)
    try:
        for name in names[:-1]:
            next_directory = _step(here, name, path)
            os.close(here)
            here = next_directory
        try:
            opened = os.open(names[-1], flags | os.O_NOFOLLOW, dir_fd=here)
        except OSError as fault:
            if fault.errno == errno.ELOOP or _is_link(here, names[-1]):
                raise LinkInTheWay(errno.ELOOP, "a link stands in the way", path) from None
            raise
        # With O_PATH the kernel opens the link itself.
        if stat.S_ISLNK(os.fstat(opened).st_mode):
            os.close(opened)
            raise LinkInTheWay(errno.ELOOP, "a link stands in the way", path)
        return opened
    finally:
        os.close(here)


def _step(here: int, name: str, path: str) -> int:
    try:
        return os.open(name, _WALK, dir_fd=here)
    except NotADirectoryError:
        if _is_link(here, name):
            raise LinkInTheWay(errno.ELOOP, "a link stands in the way", path) from None
        raise


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def is_there(directory: int, name: str) -> bool:
    """Tell whether a directory has an entry with this name, even a dangling link."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def _regular_or_missing(directory: int, name: str, path: str) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise LinkInTheWay(errno.ELOOP, "a link stands in the way", path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return status


def _give_directory(made: int, above: int) -> None:
    owner = owner_of(above)
    if owner is None:
        return
    opened = os.open(".", _DIRECTORY, dir_fd=made)
    try:
        # The owner of the parent directory may have put another directory there meanwhile.
        if os.fstat(opened).st_uid == 0:
            give(opened, owner)
    finally:
        os.close(opened)


def _keep_owner_and_mode(made: int, old: os.stat_result) -> None:
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.fchown(made, old.st_uid, old.st_gid)
    os.fchmod(made, old.st_mode & 0o777)


def rename_if_free(old: int, old_name: str, new: int, new_name: str) -> None:
    """Rename a directory entry to a free name; raise `FileExistsError` if it is taken."""
    try:
        _rename(old, old_name, new, new_name, _NO_REPLACE)
    except OSError as fault:
        if fault.errno not in {errno.ENOSYS, errno.EINVAL}:
            raise
        if is_there(new, new_name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_name) from None
        os.rename(old_name, new_name, src_dir_fd=old, dst_dir_fd=new)


def exchange_entries(old: int, old_name: str, new: int, new_name: str) -> None:
    """Exchange two directory entries in one step; both must exist."""
    _rename(old, old_name, new, new_name, _EXCHANGE)


def _rename(old: int, old_name: str, new: int, new_name: str, how: int) -> None:
    if _RENAMEAT2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), old_name, None, new_name)
    result = _libc.syscall(
        ctypes.c_long(_RENAMEAT2), ctypes.c_int(old), ctypes.c_char_p(os.fsencode(old_name)), ctypes.c_int(new),
        ctypes.c_char_p(os.fsencode(new_name)), ctypes.c_uint(how),
    )  # fmt: skip
    if result != 0:
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault), old_name, None, new_name)


def sync_file_system(opened: int) -> None:
    """Flush the file system of an open file or directory to disk."""
    if _libc.syncfs(ctypes.c_int(opened)) != 0:
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault))
