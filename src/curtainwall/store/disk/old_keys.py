"""Keys of commands that were decided long ago: they are forgotten a few at a time, because nobody brings them again."""

import sqlite3
from typing import Final

from curtainwall.model import Millis

AT_OPENING: Final = 2000
"""How many rows are looked at when a store is opened."""

_KEPT: Final[Millis] = 7 * 24 * 3600 * 1000
_REST: Final[Millis] = 3600 * 1000
_FEW: Final = 256


def prune(db: sqlite3.Connection, now: Millis, after: int, many: int) -> int:
    """Forget what was decided long ago among the rows that come next, in one statement; return the last of them, 0 at the end."""
    rows = "SELECT row, decided FROM inbox WHERE row > ? ORDER BY row LIMIT ?"
    last, oldest = db.execute(f"SELECT max(row), min(decided) FROM ({rows})", (after, many)).fetchone()  # noqa: S608 - the text above
    if oldest is not None and oldest < now - _KEPT:
        db.execute("DELETE FROM inbox WHERE row > ? AND row <= ? AND decided < ?", (after, last, now - _KEPT))
    return int(last or 0)


class Pruning:
    """One walk after the other through the whole inbox, with a long rest between them."""

    def __init__(self) -> None:
        self._after = 0
        self._next: Millis = 0

    def go_on(self, db: sqlite3.Connection, now: Millis) -> None:
        """Look at a few more rows; where somebody else writes, another time."""
        # A clock that was set back is waited for by nobody.
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
