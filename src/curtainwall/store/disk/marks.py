"""Marks: what channels remember outside the log, on disk and in memory."""

import sqlite3
from collections.abc import Mapping

from curtainwall.store.database import Reader
from curtainwall.store.disk.writer_on_demand import WriterOnDemand


class SqliteMarks:
    """Marks in the database beside the log."""

    def __init__(self, writer: WriterOnDemand, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    def get(self, channel: str, name: str) -> str | None:
        """Return what was remembered under a name."""
        row = self._reader.one("SELECT value FROM mark WHERE channel = ? AND name = ?", (channel, name))
        return row[0] if row else None

    def all(self, channel: str) -> Mapping[str, str]:
        """Return all marks of a channel by name."""
        return dict(self._reader.all("SELECT name, value FROM mark WHERE channel = ? ORDER BY name", (channel,)))

    async def set(self, channel: str, marks: Mapping[str, str | None]) -> None:
        """Store these marks durably, all or none; None deletes a name."""
        if marks:
            await self._writer.get().run(lambda db: _write(db, channel, dict(marks)))


class MemoryMarks:
    """Marks for as long as the process lives."""

    def __init__(self, marks: dict[tuple[str, str], str]) -> None:
        self._kept = marks

    def get(self, channel: str, name: str) -> str | None:
        """Return what was remembered under a name."""
        return self._kept.get((channel, name))

    def all(self, channel: str) -> Mapping[str, str]:
        """Return all marks of a channel by name."""
        return {name: self._kept[channel, name] for owner, name in sorted(self._kept) if owner == channel}

    async def set(self, channel: str, marks: Mapping[str, str | None]) -> None:
        """Store these marks; None deletes a name."""
        for name, value in marks.items():
            if value is None:
                self._kept.pop((channel, name), None)
            else:
                self._kept[channel, name] = value


def _write(db: sqlite3.Connection, channel: str, marks: dict[str, str | None]) -> None:
    for name, value in marks.items():
        if value is None:
            db.execute("DELETE FROM mark WHERE channel = ? AND name = ?", (channel, name))
        else:
            db.execute("INSERT OR REPLACE INTO mark VALUES (?, ?, ?)", (channel, name, value))
