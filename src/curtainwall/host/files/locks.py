"""Exclusive file locks across processes; the kernel releases a lock when its holder dies."""

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
    """A held lock."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Release the lock; calling it twice is harmless."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def lock_file(path: Path) -> FileLock | None:
    """Lock a file, creating it privately if needed; return None if it is locked already, in this process or another."""
    return _take(path, fcntl.F_OFD_SETLK)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock on a file that serves no other purpose; wait until it is free."""
    lock = _take(path, fcntl.F_OFD_SETLKW)
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


def _take(path: Path, operation: int) -> FileLock | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.fcntl(descriptor, operation, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError as fault:
        os.close(descriptor)
        if fault.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return FileLock(descriptor)
