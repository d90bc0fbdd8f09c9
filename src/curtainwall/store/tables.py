"""Row changes in, SQL out: how the projections stand in the database."""

import sqlite3
from typing import assert_never

from pydantic import TypeAdapter

from curtainwall.model import Cover, Grant, StreamId, session_of
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
