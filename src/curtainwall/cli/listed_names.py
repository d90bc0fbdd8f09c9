"""A look at the lists in the database and the names in the configuration, for completion alone: read-only, at once, without the store."""

import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

_MOST = 200
_PATIENCE = 0.1


class Glimpse(NamedTuple):
    """Something that could be named, and what it is."""

    value: str
    meaning: str


def sessions(log: Path, start: str) -> list[Glimpse]:
    """Return sessions whose id begins so, newest first, with their names."""
    query = (
        "SELECT session, status || '  ' || name FROM session WHERE substr(session, 1, ?) = ? ORDER BY created DESC, session DESC LIMIT ?"
    )
    return _look(log, query, (len(start), start, _MOST))


def open_approvals(log: Path) -> list[Glimpse]:
    """Return the approvals that wait, newest first, with what each is about."""
    query = "SELECT approval, tool || '  ' || session FROM approval WHERE status = 'open' ORDER BY asked DESC LIMIT ?"
    return _look(log, query, (_MOST,))


def standing_grants(log: Path) -> list[Glimpse]:
    """Return the answers that stand, newest first, with where they do."""
    return _look(log, "SELECT id, stream FROM standing WHERE revoked IS NULL ORDER BY at DESC LIMIT ?", (_MOST,))


def configured(config: Path, table: str) -> list[Glimpse]:
    """Return what the configuration calls `[TABLE.NAME]`, with what it says of each."""
    try:
        tables: dict[str, dict[str, dict[str, object]]] = tomllib.loads(config.read_text(encoding="utf-8"))
        return [Glimpse(name, str(it.get("description", ""))) for name, it in tables.get(table, {}).items()]
    except (OSError, ValueError, AttributeError):  # missing, no TOML, or no such tables: for `config show` to say
        return []


def _look(log: Path, query: str, values: tuple[object, ...]) -> list[Glimpse]:
    if not log.is_file():
        return []
    # While somebody has the log open, its journal is there and is read along. Otherwise SQLite would make one just to look.
    is_open = all(log.with_name(f"{log.name}{end}").exists() for end in ("-wal", "-shm"))
    with closing(sqlite3.connect(f"{log.as_uri()}?mode=ro{'' if is_open else '&immutable=1'}", uri=True, timeout=_PATIENCE)) as db:
        return [Glimpse(str(value), str(meaning)) for value, meaning in db.execute(query, values)]
