"""A copy of a directory tree that takes no more room than the tree; links stay links, devices and sockets stay behind."""

import contextlib
import errno
import fcntl
import os
import stat
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path

from curtainwall.model import CommandRefused

FICLONE = 0x40049409
_PIECE = 1024 * 1024
# A directory stays open for each level on the way down.
_DEEPEST = 256


@dataclass(slots=True)
class Copied:
    """What a copy took along, and what it left behind."""

    files: int = 0
    shared: int = 0
    skipped: int = 0
    linked: dict[tuple[int, int], Path] = field(default_factory=dict[tuple[int, int], Path], repr=False)
    """Where each file is that has several names."""


def copy_tree(source: Path, target: Path) -> Copied:
    """Copy what is in a directory into another that is empty; nothing outside the source is ever read through a link."""
    done = Copied()
    for here, directories, files, descriptor in os.fwalk(source, follow_symlinks=False, onerror=_raise):
        there = target / os.path.relpath(here, source)
        if len(there.parts) - len(target.parts) > _DEEPEST:
            raise CommandRefused(f"`{source}` is nested too deeply to be copied")
        for name in directories:
            _copy_entry(name, descriptor, there, done)
        for name in files:
            _copy_entry(name, descriptor, there, done)
    return done


def _raise(error: OSError) -> None:
    raise error


def _copy_entry(name: str, directory: int, there: Path, done: Copied) -> None:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    target = there / name
    if stat.S_ISLNK(found.st_mode):
        target.symlink_to(os.readlink(name, dir_fd=directory))
    elif stat.S_ISDIR(found.st_mode):
        target.mkdir(mode=0o700)
    elif stat.S_ISREG(found.st_mode):
        _copy_file(name, directory, target, done)
    else:
        done.skipped += 1


def _copy_file(name: str, directory: int, target: Path, done: Copied) -> None:
    origin = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with open(origin, "rb", buffering=0) as source:
        found = os.fstat(origin)
        if not stat.S_ISREG(found.st_mode):
            done.skipped += 1
            return
        done.files += 1
        if found.st_nlink > 1:
            first = done.linked.setdefault((found.st_dev, found.st_ino), target)
            if first != target:
                os.link(first, target)
                return
        with open(target, "xb", buffering=0) as copy:
            try:
                fcntl.ioctl(copy.fileno(), FICLONE, origin)
                done.shared += 1
            except OSError:
                _copy_data(source, copy, found.st_size)
            os.fchmod(copy.fileno(), stat.S_IMODE(found.st_mode) & 0o777)
            with contextlib.suppress(OSError):
                os.utime(copy.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))


def _copy_data(source: RawIOBase, copy: RawIOBase, size: int) -> None:
    """Copy what a file holds and leave its holes as they are: they may be bigger than the disk."""
    at = 0
    while at < size:
        try:
            at = source.seek(at, os.SEEK_DATA)
        except OSError as fault:
            if fault.errno != errno.ENXIO:
                raise
            break
        end = min(source.seek(at, os.SEEK_HOLE), size)
        source.seek(at)
        copy.seek(at)
        while at < end and (piece := source.read(min(_PIECE, end - at))):
            at += copy.write(piece) or 0
            source.seek(at)
        if at < end:
            break
    copy.truncate(size)
