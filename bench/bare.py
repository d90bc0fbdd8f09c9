"""This machine's own limit: SQLite alone, one table, the same bytes, the same durability."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from curtainwall.model import AnyEvent, encode_event


class BareLog:
    """Events in one table and nothing else: no hashes, no heads, no thread, no lists."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(
            "CREATE TABLE entry (place INTEGER PRIMARY KEY, kind TEXT NOT NULL, version INTEGER NOT NULL, payload BLOB NOT NULL)"
        )

    def commit(self, events: Sequence[AnyEvent]) -> None:
        """Write the events in one durable commit."""
        rows = [encode_event(event) for event in events]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO entry VALUES (NULL, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
