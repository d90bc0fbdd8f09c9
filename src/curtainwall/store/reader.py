"""Reads from the database, from any thread, with complaints in our own words."""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from curtainwall.model import TryLater
from curtainwall.store.faults import explain
from curtainwall.store.schema import STREAM_SHIFT, connect

T = TypeVar("T")
Row = tuple[Any, ...]

READ = f"""
SELECT h.stream, e.place & {(1 << STREAM_SHIFT) - 1}, e.kind, e.version, e.payload, e.hash
FROM head h CROSS JOIN entry e
WHERE h.stream = ? AND e.place > (h.id << {STREAM_SHIFT}) + ? AND e.place < (h.id + 1) << {STREAM_SHIFT}
"""  # noqa: S608 - numbers of our own
"""The entries of a stream after one of them."""


class Reader:
    """One connection beside the writer's; it is opened when first needed and again after a failure."""

    def __init__(self, path: Path, busy_millis: int) -> None:
        self._path = path
        self._busy_millis = busy_millis
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._closed = False

    def all(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Return every row; raise `TryLater` or `Broken`."""
        return self.run(lambda db: db.execute(sql, values).fetchall())

    def one(self, sql: str, values: Sequence[object] = ()) -> Row | None:
        """Return the first row or None; raise `TryLater` or `Broken`."""
        return self.run(lambda db: db.execute(sql, values).fetchone())

    def run(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        """Return what a function makes of the connection; raise `TryLater` or `Broken`."""
        with self._lock:
            if self._closed:
                raise TryLater("the store is closed: open it again")
            if self._db is None:
                self._db = connect(self._path, self._busy_millis)
            try:
                return ask(self._db)
            except sqlite3.Error as error:
                self._db.close()
                self._db = None
                raise explain(error, self._path) from error

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()
                self._db = None
