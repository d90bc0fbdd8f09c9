"""Deletes commands that were decided long ago from the inbox."""

import sqlite3
from typing import Final

from curtainwall.model import Millis

AT_OPENING: Final = 2000
"""How many inbox rows are checked for pruning when a store is opened."""

_KEPT: Final[Millis] = 7 * 24 * 3600 * 1000
_REST: Final[Millis] = 3600 * 1000
_FEW: Final = 256


def prune(db: sqlite3.Connection, now: Millis, after: int, many: int) -> int:
    """Delete commands decided long ago among the next rows of the inbox. Return the last row examined, or 0 at the end."""
    rows = "SELECT row, decided FROM inbox WHERE row > ? ORDER BY row LIMIT ?"
    last, oldest = db.execute(f"SELECT max(row), min(decided) FROM ({rows})", (after, many)).fetchone()  # noqa: S608 - the text above
    if oldest is not None and oldest < now - _KEPT:
        db.execute("DELETE FROM inbox WHERE row > ? AND row <= ? AND decided < ?", (after, last, now - _KEPT))
    return int(last or 0)


class InboxPruner:
    """Walks through the whole inbox again and again, with a long rest between walks."""

    def __init__(self) -> None:
        self._after = 0
        self._next: Millis = 0

    def go_on(self, db: sqlite3.Connection, now: Millis) -> None:
        """Prune a few more rows, or none while another process is writing."""
        # Do not wait for a clock that was set back.
        if 0 < self._next - now <= _REST:
            return
        try:
            self._after = prune(db, now, self._after, _FEW)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        else:
            if not self._after:
                self._next = now + _REST
