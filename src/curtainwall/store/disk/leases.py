"""Leases: one locked byte of a file per stream. The kernel releases the lock when the process ends."""

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from curtainwall.model import Clock, Owner, StreamId, TryLater
from curtainwall.store.faults import explain_file
from curtainwall.store.home import private_file

# `struct flock` of 64-bit Linux: type, whence, start, length, pid (which must be 0 for locks of open file descriptions).
_FLOCK = struct.Struct("hhqqi4x")
# An owner's byte, process and start time, for messages only. Slots may be overwritten; nothing depends on them.
_SLOT = struct.Struct("<QQQ")
_SLOTS = 1 << 14


class OfdLease:
    """One held lock; it ends when its file description is closed."""

    def __init__(self, descriptor: int, held: "set[OfdLease]") -> None:
        self._descriptor: int | None = descriptor
        self._held = held
        held.add(self)

    def release(self) -> None:
        """Release the lease; calling it twice is harmless."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._held.discard(self)
            os.close(descriptor)


class OfdLeases:
    """The leases of one home. Each lease has a separate file description, so two takers in one process also exclude each other."""

    def __init__(self, path: Path, clock: Clock, hint: Callable[[StreamId], None]) -> None:
        self._path = path
        self._clock = clock
        self._hint = hint
        self._lock = threading.Lock()
        self._held: set[OfdLease] = set()

    def take(self, stream: StreamId) -> OfdLease | None:
        """Return the lease, or None while someone else holds it."""
        byte = _byte_of(stream)
        descriptor = self._open()
        try:
            is_ours = lock_byte(descriptor, byte)
        except OSError as error:
            os.close(descriptor)
            raise explain_file(error, self._path) from error
        if not is_ours:
            os.close(descriptor)
            return None
        # A full disk must not prevent a lease; messages then show less.
        with contextlib.suppress(OSError):
            os.pwrite(descriptor, _SLOT.pack(byte, os.getpid(), self._clock.now()), byte % _SLOTS * _SLOT.size)
        with self._lock:
            return OfdLease(descriptor, self._held)

    def owner(self, stream: StreamId) -> Owner | None:
        """Return the holder of the lease, for a message, or None."""
        byte = _byte_of(stream)
        descriptor = self._open()
        try:
            lock = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
            if _FLOCK.unpack(lock)[0] == fcntl.F_UNLCK:
                return None
            slot = os.pread(descriptor, _SLOT.size, byte % _SLOTS * _SLOT.size)
        finally:
            os.close(descriptor)
        holder, pid, since = _SLOT.unpack(slot.ljust(_SLOT.size, b"\0"))
        return Owner(pid, since) if holder == byte else Owner(0, 0)

    def tell(self, news: StreamId) -> None:
        """Notify every watcher of the log that a lease is wanted or free. This is a hint and may get lost."""
        self._hint(news)

    def close(self) -> None:
        """Release every lease taken here."""
        with self._lock:
            held = list(self._held)
        for lease in held:
            lease.release()

    def _open(self) -> int:
        try:
            return private_file(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise TryLater("too many files are open to take a lease: raise the limit or close sessions") from error
            raise explain_file(error, self._path) from error


def lock_byte(descriptor: int, byte: int) -> bool:
    """Lock one byte of a file until its description is closed; return False while someone else holds it."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _byte_of(stream: StreamId) -> int:
    """Return the byte for a stream. It is derived from the name, so that a lease needs no write to the database."""
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:8], "big") >> 2
