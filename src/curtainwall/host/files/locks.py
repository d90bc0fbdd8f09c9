"""A lock on a file that one holder has at a time, over all processes; the kernel takes it back with whoever held it."""

import errno
import fcntl
import os
import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

# `struct flock` of 64-bit Linux: type, whence, start, length, pid (which must be 0 for locks of open file descriptions).
_FLOCK = struct.Struct("hhqqi4x")


class FileLock:
    """A lock that is held."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let someone else have it; calling it twice is harmless."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def lock_file(path: Path) -> FileLock | None:
    """Lock a file, made where it is not there yet, closed to others; None while someone else, here or in another process, has it."""
    return _take(path, fcntl.F_OFD_SETLK)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock by the name of a file that is there for nothing else; wait until it is free."""
    held = _take(path, fcntl.F_OFD_SETLKW)
    assert held is not None
    try:
        yield
    finally:
        held.release()


def _take(path: Path, how: int) -> FileLock | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.fcntl(descriptor, how, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError as fault:
        os.close(descriptor)
        if fault.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return FileLock(descriptor)
