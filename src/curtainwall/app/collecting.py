"""How a process that stays looks for garbage: seldom, and not in what start-up made."""

import gc
from typing import Final

_NEW_ONES: Final = 20_000
_ROUNDS: Final = 20


def collect_seldom() -> None:
    """Keep what is there now out of every look for garbage: to go through all of it stops everything, for 70 ms each time."""
    gc.freeze()
    gc.set_threshold(_NEW_ONES, _ROUNDS, _ROUNDS)
