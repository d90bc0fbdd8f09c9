"""A house that stays, as `serve` is one, for as long as it is measured."""

import gc
from collections.abc import Generator
from contextlib import contextmanager

from curtainwall.runtime import Stores
from curtainwall.serve.process import tune_process


@contextmanager
def staying(store: Stores) -> Generator[None]:
    """Do what `serve` does to go on without long stops; what comes after in this process is as before."""
    usual = gc.get_threshold()
    tune_process(store)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
