"""The first level: the store of a home, opened for reading."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from curtainwall.host.home import Home
from curtainwall.model import Broken, StreamId
from curtainwall.runtime import HomeStores, SystemClock
from curtainwall.session import lift
from curtainwall.store import SqliteStore, loss_of_database

SERVING: Final = StreamId("serve")
"""The lease of the process that serves a home."""


@contextmanager
def open_store(home: Home, *, only_if_whole: bool = True) -> Generator[HomeStores]:
    """Open the store for reading; if there is no log yet, yield an empty one and write nothing.

    With `only_if_whole`, raise `Broken` for a log that has lost entries.
    """
    if not home.database.exists():
        if only_if_whole and (loss := loss_of_database(home.root)) is not None:
            raise Broken(str(loss))
        # Start-up time: only a new home has no log.
        from curtainwall.store import MemoryStore

        yield MemoryStore(SystemClock())
        return
    store = SqliteStore.open(home.root, SystemClock(), decode=lift, only_if_whole=only_if_whole)
    try:
        yield store
    finally:
        store.close()


def is_served(home: Home) -> bool:
    """Tell whether a `serve` process runs for a home."""
    with open_store(home) as store:
        return store.leases.owner(SERVING) is not None
