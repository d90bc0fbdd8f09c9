"""The lists as tables: row changes as SQL, and rebuilding and verifying them against the log. Only writing needs this."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import assert_never

from curtainwall.model import Entry, Grant, Millis, StreamId, session_of
from curtainwall.store.audit.chain import ChainFault
from curtainwall.store.audit.trail import Decode
from curtainwall.store.database import COVERS, HIDE, PROJECTIONS, READ, SHOW, create_lists
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
    SessionUnlocked,
    TurnBegun,
    changes,
)

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


def statements(change: Change) -> list[Statement]:
    """Return the SQL for a change to the tables, as plain text and values, so that any process can run it."""
    match change:
        case SessionListed(session, it):
            row = (session, it.name, it.agent, it.model, it.channel, it.mode.value, it.workspace.path, it.workspace.own, it.at, it.parent)
            return [("INSERT OR IGNORE INTO session VALUES (?, ?, ?, ?, ?, 'opening', ?, ?, ?, ?, 0, ?)", row)]
        case SessionSet(session, column, value):
            return [(_SET[column], (value, session))]
        case SessionUnlocked(session):
            return [("UPDATE session SET status = 'ready' WHERE session = ?", (session,))]
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
            return [("INSERT OR IGNORE INTO standing VALUES (?, ?, ?, ?, NULL)", (stream, grant.id, _grant_bytes(grant), grant.at))]
        case GrantEnded(stream, grant, at):
            return [("UPDATE standing SET revoked = ? WHERE stream = ? AND id = ? AND revoked IS NULL", (at, stream, grant))]
        case RouteLeads(route, None):
            return [("DELETE FROM route WHERE channel = ? AND reference = ?", (route.channel, route.reference))]
        case RouteLeads(route, session):
            return [("INSERT OR REPLACE INTO route VALUES (?, ?, ?)", (route.channel, route.reference, session))]
        case RoutesEnded(session):
            return [("DELETE FROM route WHERE session = ?", (session,))]
        case AsksShown(session, route, shown):
            return [(SHOW if shown else HIDE, (session, route.channel, route.reference))]
        case _:
            assert_never(change)


def _grant_bytes(grant: Grant) -> bytes:
    return grant.__pydantic_serializer__.to_json(grant)


def apply(db: sqlite3.Connection, change: Change) -> None:
    """Apply one change to the tables."""
    for text, values in statements(change):
        db.execute(text, values)


def forget(db: sqlite3.Connection, stream: StreamId) -> None:
    """Delete everything that was projected from a stream."""
    db.execute("DELETE FROM standing WHERE stream = ?", (stream,))
    if (session := session_of(stream)) is not None:
        for table in ("session", "label", "call", "approval", "shown"):
            db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))  # noqa: S608 - names of our own tables


def rows_of(db: sqlite3.Connection, table: str) -> set[tuple[object, ...]]:
    """Return the rows of a list, with JSON columns as they would be written today."""
    rows = db.execute(f"SELECT * FROM {table}")  # noqa: S608 - names of our own tables
    match table:
        case "approval":
            return {(*row[:4], COVERS.dump_json(COVERS.validate_json(row[4])), *row[5:]) for row in rows}
        case "standing":
            return {(*row[:2], _grant_bytes(Grant.model_validate_json(row[2])), *row[3:]) for row in rows}
        case _:
            return set(rows)


def rebuild_lists(db: sqlite3.Connection, decode: Decode) -> None:
    """Rebuild all lists from the log, inside the open transaction."""
    for table in PROJECTIONS:
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own tables
    for number, at in _fill_lists(db, db, decode):
        db.execute("UPDATE head SET at = ? WHERE id = ? AND at <> ?", (at, number, at))


def verify_lists(db: sqlite3.Connection, decode: Decode) -> ChainFault | None:
    """Return the first list that does not match the log, or None."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as expected:
        create_lists(expected)
        for _ in _fill_lists(db, expected, decode):
            pass
        for table in PROJECTIONS:
            shown, wanted = rows_of(db, table), rows_of(expected, table)
            if shown != wanted:
                which = next(iter(sorted(shown ^ wanted, key=repr)))[0]
                kind = "lacks or changes" if wanted - shown else "shows"
                explanation = (
                    f"the list of {table}s {kind} what the log says otherwise of `{which}`; `curtainwall audit rebuild` makes it anew"
                )
                return ChainFault(None, None, "list altered", explanation)
    return None


def _fill_lists(log: sqlite3.Connection, lists: sqlite3.Connection, decode: Decode) -> Iterator[tuple[int, Millis]]:
    """Project every stream of a log into the lists, and yield its number and the time of its last entry."""
    for number, name in log.execute("SELECT id, stream FROM head ORDER BY id").fetchall():
        stream, at = StreamId(name), 0
        for row in log.execute(f"{READ} ORDER BY e.place", (stream, 0)):
            event = decode(Entry._make(row))
            at = event.at
            for change in changes(stream, event):
                apply(lists, change)
        yield number, at
