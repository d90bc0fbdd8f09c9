"""Row changes in, SQL out: how the projections stand in the database."""

import sqlite3
from typing import assert_never

from pydantic import TypeAdapter

from curtainwall.model import Cover, StreamId, session_of
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
    TurnCounted,
)

COVERS = TypeAdapter(tuple[Cover, ...])

_SET = {
    "status": "UPDATE session SET status = ? WHERE session = ? AND status <> 'closed'",
    "name": "UPDATE session SET name = ? WHERE session = ?",
    "mode": "UPDATE session SET mode = ? WHERE session = ?",
    "model": "UPDATE session SET model = ? WHERE session = ?",
}

_SHOW = "INSERT OR IGNORE INTO shown VALUES (?, ?, ?)"


def apply(db: sqlite3.Connection, change: Change) -> None:
    """Make one change in the tables."""
    match change:
        case SessionListed(session, it):
            row = (session, it.name, it.agent, it.model, it.channel, it.mode.value, it.workspace.path, it.workspace.own, it.at, it.parent)
            db.execute("INSERT OR IGNORE INTO session VALUES (?, ?, ?, ?, ?, 'opening', ?, ?, ?, ?, 0, ?)", row)
        case SessionSet(session, column, value):
            db.execute(_SET[column], (value, session))
        case TurnCounted(session):
            db.execute("UPDATE session SET turns = turns + 1 WHERE session = ?", (session,))
        case LabelsSeen(session, labels):
            db.executemany("INSERT OR IGNORE INTO label VALUES (?, ?)", [(session, label) for label in labels])
        case CallNamed(session, call, tool):
            db.execute("INSERT OR REPLACE INTO call VALUES (?, ?, ?)", (session, call, tool))
        case CallForgotten(session, call):
            db.execute("DELETE FROM call WHERE session = ? AND call = ?", (session, call))
        case ApprovalListed(session, it):
            db.execute(
                "INSERT OR IGNORE INTO approval VALUES (?1, ?2, coalesce((SELECT tool FROM call WHERE session = ?1 AND call = ?3), ''),"
                " ?4, ?5, ?6, ?7, ?8, 'open', NULL, '', '')",
                (session, it.approval, it.call, it.shown, COVERS.dump_json(it.covers), it.digest, it.at, it.deadline),
            )
        case ApprovalSettled(session, approval, status, at, by, reason):
            db.execute(
                "UPDATE approval SET status = ?, settled = ?, settled_by = ?, reason = ?"
                " WHERE session = ? AND approval = ? AND status = 'open'",
                (status, at, by, reason, session, approval),
            )
        case GrantListed(stream, grant):
            body = grant.__pydantic_serializer__.to_json(grant)
            db.execute("INSERT OR IGNORE INTO standing VALUES (?, ?, ?, ?, NULL)", (stream, grant.id, body, grant.at))
        case GrantEnded(stream, grant, at):
            db.execute("UPDATE standing SET revoked = ? WHERE stream = ? AND id = ? AND revoked IS NULL", (at, stream, grant))
        case RouteLeads(route, None):
            db.execute("DELETE FROM route WHERE channel = ? AND reference = ?", (route.channel, route.reference))
        case RouteLeads(route, session):
            db.execute("INSERT OR REPLACE INTO route VALUES (?, ?, ?)", (route.channel, route.reference, session))
        case RoutesEnded(session):
            db.execute("DELETE FROM route WHERE session = ?", (session,))
        case AsksShown(session, route, shown):
            row = (session, route.channel, route.reference)
            db.execute(_SHOW if shown else "DELETE FROM shown WHERE session = ? AND channel = ? AND reference = ?", row)
        case _:
            assert_never(change)


def forget(db: sqlite3.Connection, stream: StreamId) -> None:
    """Take everything that was told from a stream out of the tables."""
    db.execute("DELETE FROM standing WHERE stream = ?", (stream,))
    if (session := session_of(stream)) is not None:
        for table in ("session", "label", "call", "approval", "shown"):
            db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))  # noqa: S608 - names of our own tables
