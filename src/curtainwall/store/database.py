"""The database: its tables and format version, connections, and reads from any thread."""

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter

from curtainwall.model import Broken, Cover, RouteAdded, RouteRemoved, StreamId, TryLater, decode_event, session_of
from curtainwall.store.faults import explain, explain_file
from curtainwall.store.home import private_file

COVERS = TypeAdapter(tuple[Cover, ...], config=ConfigDict(defer_build=True))
"""The covered resources of an approval, as the list of approvals stores them."""

FORMAT = 5
"""The version of the store's format that this program writes."""

BUSY_MILLIS = 5_000
"""How long we wait for a database that another process has locked."""

_ASK_AGAIN = 0.000_5
_PRIVATE = 0o600

STREAM_SHIFT = 32
"""An entry's place combines its stream's number and its sequence number in one integer, so that a stream is stored contiguously."""

# `entry`, `head`, `seal` and `inbox` are the truth; the lists can be rebuilt from `entry`.
_LOG = """
CREATE TABLE entry (
    place INTEGER PRIMARY KEY, kind TEXT NOT NULL, version INTEGER NOT NULL, payload BLOB NOT NULL, hash BLOB NOT NULL
);
CREATE TABLE head (
    id INTEGER PRIMARY KEY, stream TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL, hash BLOB NOT NULL, mac BLOB NOT NULL,
    at INTEGER NOT NULL, audited INTEGER NOT NULL
);
CREATE TABLE seal (
    one INTEGER PRIMARY KEY CHECK (one = 1), streams INTEGER NOT NULL, entries INTEGER NOT NULL, total BLOB NOT NULL, mac BLOB NOT NULL,
    written INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE inbox (
    row INTEGER PRIMARY KEY AUTOINCREMENT, stream TEXT NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, payload BLOB NOT NULL,
    decided INTEGER, seq INTEGER, code TEXT NOT NULL DEFAULT '', message TEXT NOT NULL DEFAULT '', UNIQUE (stream, key)
);
CREATE INDEX inbox_waiting ON inbox (stream, row) WHERE decided IS NULL;
"""
_LISTS = """
CREATE TABLE session (
    session TEXT PRIMARY KEY, name TEXT NOT NULL, agent TEXT NOT NULL, model TEXT NOT NULL, channel TEXT NOT NULL, status TEXT NOT NULL,
    mode TEXT NOT NULL, workspace TEXT NOT NULL, own_workspace INTEGER NOT NULL, created INTEGER NOT NULL, turns INTEGER NOT NULL,
    parent TEXT
);
CREATE INDEX session_created ON session (created, session);
CREATE INDEX session_status ON session (status, created, session);
CREATE INDEX session_agent ON session (agent, created, session);
CREATE INDEX session_channel ON session (channel, created, session);
CREATE TABLE label (session TEXT NOT NULL, label TEXT NOT NULL, PRIMARY KEY (session, label)) WITHOUT ROWID;
CREATE TABLE call (session TEXT NOT NULL, call TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (session, call)) WITHOUT ROWID;
CREATE TABLE approval (
    session TEXT NOT NULL, approval TEXT NOT NULL, tool TEXT NOT NULL, shown TEXT NOT NULL, covers BLOB NOT NULL, digest TEXT NOT NULL,
    asked INTEGER NOT NULL, deadline INTEGER, status TEXT NOT NULL, settled INTEGER, settled_by TEXT NOT NULL, reason TEXT NOT NULL,
    UNIQUE (session, approval)
);
CREATE INDEX approval_asked ON approval (asked, session, approval);
CREATE INDEX approval_named ON approval (approval);
CREATE INDEX approval_open ON approval (session, asked) WHERE status = 'open';
CREATE TABLE standing (
    stream TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, at INTEGER NOT NULL, revoked INTEGER, PRIMARY KEY (stream, id)
) WITHOUT ROWID;
"""
_ROUTES = """
CREATE TABLE route (
    channel TEXT NOT NULL, reference TEXT NOT NULL, session TEXT NOT NULL, PRIMARY KEY (channel, reference)
) WITHOUT ROWID;
CREATE INDEX route_session ON route (session);
"""

_SHOWN = """
CREATE TABLE shown (
    session TEXT NOT NULL, channel TEXT NOT NULL, reference TEXT NOT NULL, PRIMARY KEY (session, channel, reference)
) WITHOUT ROWID;
CREATE INDEX shown_place ON shown (channel, reference)
"""
# Marks are not a projection: they cannot be rebuilt from the log.
_MARKS = """
CREATE TABLE mark (channel TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (channel, name)) WITHOUT ROWID
"""

# Counts and searches must not scan whole tables.
_INDEXES = """
CREATE INDEX approval_settled ON approval (status) WHERE status <> 'open';
CREATE INDEX label_named ON label (label, session);
CREATE INDEX session_workspace ON session (workspace, created)
"""

SHOW = "INSERT OR IGNORE INTO shown VALUES (?, ?, ?)"
HIDE = "DELETE FROM shown WHERE session = ? AND channel = ? AND reference = ?"
"""Note that a session's asks are shown at a place, or no longer."""

PROJECTIONS = ("session", "label", "call", "approval", "standing", "route", "shown")
"""The tables that can be rebuilt from the log."""


def connect(path: Path, busy_millis: int = BUSY_MILLIS) -> sqlite3.Connection:
    """Return a connection to an existing database; raise `TryLater` or `Broken`."""
    try:
        # The file must exist: SQLite would create an empty one in place of a log that someone moved away.
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False, timeout=busy_millis / 1000
        )
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("PRAGMA cell_size_check = ON")
            db.execute("PRAGMA journal_size_limit = 16777216")
            _check_format(db, path)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise explain(error, path) from error
    return db


def begin(db: sqlite3.Connection, busy_millis: int = BUSY_MILLIS) -> None:
    """Begin a write transaction as soon as no other process has one, on a connection without a busy timeout.

    SQLite's own busy handler sleeps longer after each attempt, up to 100 ms, while a commit takes less than one.
    """
    _execute_when_free(db, "BEGIN IMMEDIATE", busy_millis)


def create(path: Path, seal: Callable[[sqlite3.Connection], None], busy_millis: int = BUSY_MILLIS) -> None:
    """Create the database if it is missing, and migrate an older one. `seal` seals a new or migrated database."""
    try:
        _make_private(path)
    except OSError as error:
        raise explain_file(error, path) from error
    try:
        db = sqlite3.connect(path, isolation_level=None, timeout=busy_millis / 1000)
        try:
            if _format_of(db) < FORMAT:
                _migrate(db, path, seal, busy_millis)
        finally:
            db.close()
    except sqlite3.Error as error:
        raise explain(error, path) from error


def create_lists(db: sqlite3.Connection) -> None:
    """Create only the lists, to be filled and compared with those of a log."""
    _run(db, f"{_LISTS}{_ROUTES}{_SHOWN}")


def _make_private(path: Path) -> None:
    """Create an empty file if there is none.

    INVARIANT: only SQLite opens an existing database. Closing any other descriptor of it drops every lock that this process holds on it,
    and then the next process to close it deletes the WAL while we use it.
    """
    try:
        os.close(private_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        if stat.S_IMODE(path.stat().st_mode) != _PRIVATE:
            path.chmod(_PRIVATE)


def _migrate(db: sqlite3.Connection, path: Path, seal: Callable[[sqlite3.Connection], None], busy_millis: int) -> None:
    _switch_to_wal(db, busy_millis)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    try:
        version = _format_of(db)
        if version == 0:
            if db.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise Broken(f"`{path}` is a database of another program")
            _run(db, f"{_LOG}{_LISTS}{_ROUTES}{_SHOWN};{_MARKS};{_INDEXES}")
            version = FORMAT
        while version < FORMAT:
            MIGRATIONS[version](db)
            version += 1
        seal(db)
        db.execute(f"PRAGMA user_version = {FORMAT}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _add_places(db: sqlite3.Connection) -> None:
    """Create the tables of format 3, and list where existing sessions show their asks."""
    _run(db, f"{_SHOWN};{_MARKS}")
    rows = (
        "SELECT h.stream, e.kind, e.payload FROM entry e JOIN head h ON h.id = e.place >> ?"
        " WHERE e.kind IN ('RouteAdded', 'RouteRemoved') ORDER BY e.place"
    )
    for stream, kind, payload in db.execute(rows, (STREAM_SHIFT,)).fetchall():
        session, event = session_of(StreamId(stream)), decode_event(kind, payload)
        if session is not None and isinstance(event, RouteAdded | RouteRemoved):
            db.execute(SHOW if isinstance(event, RouteAdded) else HIDE, (session, event.route.channel, event.route.reference))


def _add_written_count(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE seal ADD COLUMN written INTEGER NOT NULL DEFAULT 0")
    db.execute("UPDATE seal SET written = entries")


def _run(db: sqlite3.Connection, statements: str) -> None:
    """Run statements one by one inside the open transaction; `executescript` would end it."""
    for statement in statements.split(";"):
        db.execute(statement)


MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], None]] = {
    1: lambda db: _run(db, _ROUTES),
    2: _add_places,
    3: lambda db: _run(db, _INDEXES),
    4: _add_written_count,
}
"""For each older format, the step that migrates it to the next one."""


def _switch_to_wal(db: sqlite3.Connection, busy_millis: int) -> None:
    """Switch to WAL, even while others do so: SQLite does not wait here."""
    _execute_when_free(db, "PRAGMA journal_mode = WAL", busy_millis)


def _execute_when_free(db: sqlite3.Connection, statement: str, busy_millis: int) -> None:
    deadline = time.monotonic() + busy_millis / 1000
    while True:
        try:
            db.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_ASK_AGAIN)
        else:
            return


def _format_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _check_format(db: sqlite3.Connection, path: Path) -> None:
    version = _format_of(db)
    if version > FORMAT:
        remedy = "use the newer version, or put back a copy from before it"
        raise Broken(f"`{path}` has format {version} and this version knows {FORMAT} at most: {remedy}")
    if version < FORMAT:
        raise Broken(f"`{path}` is no log of ours, or was cut off: put back a copy that `audit verify` passes")


T = TypeVar("T")
Row = tuple[Any, ...]

READ = f"""
SELECT h.stream, e.place & {(1 << STREAM_SHIFT) - 1}, e.kind, e.version, e.payload, e.hash
FROM head h CROSS JOIN entry e
WHERE h.stream = ? AND e.place > (h.id << {STREAM_SHIFT}) + ? AND e.place < (h.id + 1) << {STREAM_SHIFT}
"""  # noqa: S608 - numbers of our own
"""Selects the entries of a stream after a sequence number."""


class Reader:
    """A read connection beside the writer's, opened on first use and reopened after a failure."""

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

    def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function on the connection and return its result; raise `TryLater` or `Broken`."""
        with self._lock:
            if self._closed:
                raise TryLater("the store is closed: open it again")
            if self._db is None:
                self._db = connect(self._path, self._busy_millis)
            try:
                return query(self._db)
            except sqlite3.Error as error:
                self._db.close()
                self._db = None
                raise explain(error, self._path) from error

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()
                self._db = None
