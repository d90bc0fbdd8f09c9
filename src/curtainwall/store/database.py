"""The database: its tables, their format's version, connections, row changes as SQL, and reads from any thread."""

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, assert_never

from pydantic import TypeAdapter

from curtainwall.model import Broken, Cover, Grant, StreamId, TryLater, decode_event, session_of
from curtainwall.store.faults import explain, explain_file
from curtainwall.store.home import private_file
from curtainwall.store.projection import (
    ApprovalListed,
    ApprovalSettled,
    AsksShown,
    CallForgotten,
    CallNamed,
    Change,
    GrantEnded,
    GrantListed,
    LabelsSeen,
    RouteLeads,
    RoutesEnded,
    SessionListed,
    SessionSet,
    TurnBegun,
    changes,
)

COVERS = TypeAdapter(tuple[Cover, ...])
_GRANT = TypeAdapter(Grant)

Statement = tuple[str, tuple[str | int | bytes | None, ...]]
"""SQL and its values."""

_SET = {
    "status": "UPDATE session SET status = ? WHERE session = ? AND status <> 'closed'",
    "name": "UPDATE session SET name = ? WHERE session = ?",
    "mode": "UPDATE session SET mode = ? WHERE session = ?",
    "model": "UPDATE session SET model = ? WHERE session = ?",
}
_BEGIN = "UPDATE session SET turns = turns + 1, status = CASE status WHEN 'closed' THEN status ELSE 'working' END WHERE session = ?"

_ASK = (
    "INSERT OR IGNORE INTO approval VALUES (?, ?, coalesce((SELECT tool FROM call WHERE session = ? AND call = ?), ''),"
    " ?, ?, ?, ?, ?, 'open', NULL, '', '')"
)
_SETTLE = "UPDATE approval SET status = ?, settled = ?, settled_by = ?, reason = ? WHERE session = ? AND approval = ? AND status = 'open'"
_SHOW = "INSERT OR IGNORE INTO shown VALUES (?, ?, ?)"
_HIDE = "DELETE FROM shown WHERE session = ? AND channel = ? AND reference = ?"


def statements(change: Change) -> list[Statement]:
    """Return what makes a change in the tables; nothing but text and values, so that any process can run it."""
    match change:
        case SessionListed(session, it):
            row = (session, it.name, it.agent, it.model, it.channel, it.mode.value, it.workspace.path, it.workspace.own, it.at, it.parent)
            return [("INSERT OR IGNORE INTO session VALUES (?, ?, ?, ?, ?, 'opening', ?, ?, ?, ?, 0, ?)", row)]
        case SessionSet(session, column, value):
            return [(_SET[column], (value, session))]
        case TurnBegun(session):
            return [(_BEGIN, (session,))]
        case LabelsSeen(session, labels):
            return [("INSERT OR IGNORE INTO label VALUES (?, ?)", (session, label)) for label in labels]
        case CallNamed(session, call, tool):
            return [("INSERT OR REPLACE INTO call VALUES (?, ?, ?)", (session, call, tool))]
        case CallForgotten(session, call):
            return [("DELETE FROM call WHERE session = ? AND call = ?", (session, call))]
        case ApprovalListed(session, it):
            row = (session, it.approval, session, it.call, it.shown, COVERS.dump_json(it.covers), it.digest, it.at, it.deadline)
            return [(_ASK, row)]
        case ApprovalSettled(session, approval, status, at, by, reason):
            return [(_SETTLE, (status, at, by, reason, session, approval))]
        case GrantListed(stream, grant):
            body = grant.__pydantic_serializer__.to_json(grant)
            return [("INSERT OR IGNORE INTO standing VALUES (?, ?, ?, ?, NULL)", (stream, grant.id, body, grant.at))]
        case GrantEnded(stream, grant, at):
            return [("UPDATE standing SET revoked = ? WHERE stream = ? AND id = ? AND revoked IS NULL", (at, stream, grant))]
        case RouteLeads(route, None):
            return [("DELETE FROM route WHERE channel = ? AND reference = ?", (route.channel, route.reference))]
        case RouteLeads(route, session):
            return [("INSERT OR REPLACE INTO route VALUES (?, ?, ?)", (route.channel, route.reference, session))]
        case RoutesEnded(session):
            return [("DELETE FROM route WHERE session = ?", (session,))]
        case AsksShown(session, route, shown):
            return [(_SHOW if shown else _HIDE, (session, route.channel, route.reference))]
        case _:
            assert_never(change)


def apply(db: sqlite3.Connection, change: Change) -> None:
    """Make one change in the tables."""
    for text, values in statements(change):
        db.execute(text, values)


def forget(db: sqlite3.Connection, stream: StreamId) -> None:
    """Take everything that was told from a stream out of the tables."""
    db.execute("DELETE FROM standing WHERE stream = ?", (stream,))
    if (session := session_of(stream)) is not None:
        for table in ("session", "label", "call", "approval", "shown"):
            db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))  # noqa: S608 - names of our own tables


def rows_of(db: sqlite3.Connection, table: str) -> set[tuple[object, ...]]:
    """Return the rows of a list; what is kept as JSON in the form in which it would be written today."""
    rows = db.execute(f"SELECT * FROM {table}")  # noqa: S608 - names of our own tables
    match table:
        case "approval":
            return {(*row[:4], COVERS.dump_json(COVERS.validate_json(row[4])), *row[5:]) for row in rows}
        case "standing":
            return {(*row[:2], _GRANT.dump_json(_GRANT.validate_json(row[2])), *row[3:]) for row in rows}
        case _:
            return set(rows)


FORMAT = 5
"""The version of the store's format that this program writes."""

BUSY_MILLIS = 5_000
"""How long another process may hold the database before we give up."""

_ASK_AGAIN = 0.000_5
_PRIVATE = 0o600

STREAM_SHIFT = 32
"""An entry's place is its stream's number and its sequence number in one integer, so that a stream lies in one piece."""

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
# What channels remember is no projection: nothing in the log tells it again.
_MARKS = """
CREATE TABLE mark (channel TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (channel, name)) WITHOUT ROWID
"""

# What is counted, or found by what it has, must not have everything looked at.
_FOUND_BY = """
CREATE INDEX approval_settled ON approval (status) WHERE status <> 'open';
CREATE INDEX label_named ON label (label, session);
CREATE INDEX session_workspace ON session (workspace, created)
"""

PROJECTIONS = ("session", "label", "call", "approval", "standing", "route", "shown")
"""The tables that hold nothing but what can be told from the log."""


def connect(path: Path, busy_millis: int = BUSY_MILLIS) -> sqlite3.Connection:
    """Return a connection to an existing database; raise `TryLater` or `Broken`."""
    try:
        # The file must be there: SQLite would make an empty one in place of a log that someone moved away.
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
    """Begin to write as soon as no other process does; on a connection that does not wait by itself.

    SQLite's own waiting sleeps longer each time it finds the database busy, up to 100 ms, while a commit takes less than one.
    """
    _when_free(db, "BEGIN IMMEDIATE", busy_millis)


def create(path: Path, seal: Callable[[sqlite3.Connection], None], busy_millis: int = BUSY_MILLIS) -> None:
    """Make the database unless it is there, and lift an older one; `seal` seals what is new or was lifted."""
    try:
        _make_private(path)
    except OSError as error:
        raise explain_file(error, path) from error
    try:
        db = sqlite3.connect(path, isolation_level=None, timeout=busy_millis / 1000)
        try:
            if _format_of(db) < FORMAT:
                _lift(db, path, seal, busy_millis)
        finally:
            db.close()
    except sqlite3.Error as error:
        raise explain(error, path) from error


def create_lists(db: sqlite3.Connection) -> None:
    """Make the lists alone, to be filled and compared with those of a log."""
    _run(db, f"{_LISTS}{_ROUTES}{_SHOWN}")


def _make_private(path: Path) -> None:
    """Make an empty file unless there is one.

    INVARIANT: a database that is there is opened by SQLite alone. Whoever closes another descriptor of it drops every lock that this
    process has on it, and then the next process to close it takes the WAL away beneath us.
    """
    try:
        os.close(private_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        if stat.S_IMODE(path.stat().st_mode) != _PRIVATE:
            path.chmod(_PRIVATE)


def _lift(db: sqlite3.Connection, path: Path, seal: Callable[[sqlite3.Connection], None], busy_millis: int) -> None:
    _switch_to_wal(db, busy_millis)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    try:
        found = _format_of(db)
        if found == 0:
            if db.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise Broken(f"`{path}` is a database of another program")
            _run(db, f"{_LOG}{_LISTS}{_ROUTES}{_SHOWN};{_MARKS};{_FOUND_BY}")
            found = FORMAT
        while found < FORMAT:
            MIGRATIONS[found](db)
            found += 1
        seal(db)
        db.execute(f"PRAGMA user_version = {FORMAT}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _add_places(db: sqlite3.Connection) -> None:
    """Make the tables of the third format, and list where the sessions that are there show their asks."""
    _run(db, f"{_SHOWN};{_MARKS}")
    rows = (
        "SELECT h.stream, e.kind, e.payload FROM entry e JOIN head h ON h.id = e.place >> ?"
        " WHERE e.kind IN ('RouteAdded', 'RouteRemoved') ORDER BY e.place"
    )
    for stream, kind, payload in db.execute(rows, (STREAM_SHIFT,)).fetchall():
        for change in changes(StreamId(stream), decode_event(kind, payload)):
            apply(db, change)


def _count_what_was_written(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE seal ADD COLUMN written INTEGER NOT NULL DEFAULT 0")
    db.execute("UPDATE seal SET written = entries")


def _run(db: sqlite3.Connection, statements: str) -> None:
    """Run statements one by one, inside the transaction that is open; `executescript` would end it."""
    for statement in statements.split(";"):
        db.execute(statement)


MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], None]] = {
    1: lambda db: _run(db, _ROUTES),
    2: _add_places,
    3: lambda db: _run(db, _FOUND_BY),
    4: _count_what_was_written,
}
"""For each older format the step that lifts it to the next one."""


def _switch_to_wal(db: sqlite3.Connection, busy_millis: int) -> None:
    """Switch, also while others do so: SQLite does not wait by itself here."""
    _when_free(db, "PRAGMA journal_mode = WAL", busy_millis)


def _when_free(db: sqlite3.Connection, statement: str, busy_millis: int) -> None:
    give_up = time.monotonic() + busy_millis / 1000
    while True:
        try:
            db.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(_ASK_AGAIN)
        else:
            return


def _format_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _check_format(db: sqlite3.Connection, path: Path) -> None:
    found = _format_of(db)
    if found > FORMAT:
        remedy = "use the newer version, or put back a copy from before it"
        raise Broken(f"`{path}` has format {found} and this version knows {FORMAT} at most: {remedy}")
    if found < FORMAT:
        raise Broken(f"`{path}` is no log of ours, or was cut off: put back a copy that `audit verify` passes")


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
