"""How a process that stays for weeks uses its machine: files, memory, and the time that garbage collection takes."""

import ctypes
import gc
import resource
from typing import Final

from curtainwall.runtime import Stores
from curtainwall.store import SqliteStore

_FILES: Final = 16_384
_NEW_OBJECTS: Final = 20_000
_ROUNDS: Final = 10
_LONG_ROUNDS: Final = 5
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2
_BIG: Final = 128 * 1024


def open_many_files() -> None:
    """Raise the limit of open files, within reason: sessions, programs and connections take some each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def return_freed_memory() -> None:
    """Have the C library return freed memory to the system, instead of keeping the most that was ever needed. Call it before threads start.

    By default glibc gives each thread a heap, and what is free in one is of no use to another. It also learns: after a big block is freed,
    it takes blocks of that size from a heap, which cannot be returned as long as something small behind them is in use.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return
    mallopt(_M_ARENA_MAX, _ARENAS)
    # Also where it is the default: setting it ends the learning. Big blocks are texts of conversations and results.
    mallopt(_M_MMAP_THRESHOLD, _BIG)


def tune_process(store: Stores) -> None:
    """Keep garbage collection and commits from blocking everything else for long."""
    # Scanning what start-up allocated takes 70 ms each time.
    gc.freeze()
    # Unreferenced objects are freed at once. Cycles, such as a task and the error that ended it, wait for a full collection, which comes
    # after at most a million new surviving objects.
    gc.set_threshold(_NEW_OBJECTS, _ROUNDS, _LONG_ROUNDS)
    if isinstance(store, SqliteStore):
        store.allow_writer_process()
