"""What a process does that stays for long and has much to do."""

import gc
from typing import Final

from curtainwall.runtime import Stores
from curtainwall.store import SqliteStore

_NEW_ONES: Final = 20_000
_ROUNDS: Final = 20


def stay(store: Stores) -> None:
    """Let nothing hold up everything else for long: neither looks for garbage, nor commits."""
    # To go through what start-up made takes 70 ms each time.
    gc.freeze()
    gc.set_threshold(_NEW_ONES, _ROUNDS, _ROUNDS)
    if isinstance(store, SqliteStore):
        store.write_apart()
