"""What a process does that stays for long and has much to do."""

import gc
import resource
from typing import Final

from curtainwall.runtime import Stores
from curtainwall.store import SqliteStore

_NEW_ONES: Final = 20_000
_ROUNDS: Final = 10
_LONG_ROUNDS: Final = 5
_FILES: Final = 16_384


def open_many_files() -> None:
    """Let this process open as many files as it may, within reason: sessions, programs and connections take some each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def stay(store: Stores) -> None:
    """Let nothing hold up everything else for long: neither looks for garbage, nor commits."""
    # To go through what start-up made takes 70 ms each time.
    gc.freeze()
    # What nobody refers to goes at once. What refers to itself, as a task does by the error that ended it, waits for a look at everything,
    # which comes after a million new objects at the latest that are still there.
    gc.set_threshold(_NEW_ONES, _ROUNDS, _LONG_ROUNDS)
    if isinstance(store, SqliteStore):
        store.write_apart()
