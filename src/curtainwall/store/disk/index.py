"""Answers list and search queries from the projections."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from curtainwall.model import ApprovalQuery, ApprovalRow, Grant, GrantRow, Route, SessionId, SessionQuery, SessionRow, StreamId, Tally
from curtainwall.store.database import COVERS, Reader, Row

_SESSIONS = """
SELECT s.session, s.name, s.agent, s.model, s.channel, s.status, s.mode, s.workspace, s.own_workspace, s.created, h.at, s.turns,
    (SELECT count(*) FROM approval a WHERE a.session = s.session AND a.status = 'open'),
    (SELECT json_group_array(label) FROM label l WHERE l.session = s.session), s.parent
FROM session s {} CROSS JOIN head h ON h.stream = 'session:' || s.session
"""
# Services look up one session by its id with every commit; an index in list order would scan all sessions.
_BY_NAME = "INDEXED BY sqlite_autoindex_session_1"
_ASKS = "EXISTS (SELECT 1 FROM approval a WHERE a.session = s.session AND a.status = 'open')"
# The table holds how the last turn ended instead of `ready` if it failed or was interrupted. The session is ready all the same.
_ENDINGS = ("failed", "interrupted")
_READY = "s.status IN ('ready', 'failed', 'interrupted')"
_ASKING = f"""
SELECT count(DISTINCT a.session) FROM approval a CROSS JOIN session s ON s.session = a.session
WHERE a.status = 'open' AND {_READY}
"""  # noqa: S608 - a text of our own
# Steps through the distinct labels, which are few, to the sessions with an unknown one. Never scans all sessions.
_BEYOND = """
s.session IN (SELECT session FROM label WHERE label IN (
    WITH RECURSIVE each(label) AS (
        SELECT min(label) FROM label
        UNION ALL SELECT (SELECT min(label) FROM label WHERE label > each.label) FROM each WHERE label IS NOT NULL
    )
    SELECT label FROM each WHERE label NOT IN (SELECT value FROM json_each(?))
))
"""
# A ready session with an open ask is waiting, as in its state. Only the listing has to combine the two.
_WITH_STATUS = {
    "ready": f"({_READY} AND ? = 'ready' AND NOT {_ASKS})",
    "waiting": f"(s.status = ? OR ({_READY} AND {_ASKS}))",
}
_APPROVALS = "SELECT approval, session, tool, {}, digest, asked, deadline, status, settled, settled_by, reason FROM approval"
_WHOLE, _BRIEF = "shown, covers", "'', NULL"
_ALL = -1

_ASKS_AT = "s.session IN (SELECT session FROM shown WHERE channel = ?"
_SHOWN_AT = "EXISTS (SELECT 1 FROM shown w WHERE w.session = approval.session AND w.channel = ?"


class SqliteIndex:
    """The lists of one database."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def sessions(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first. `since` and `before` refer to the last change, `text` to name and workspace."""
        filters: list[tuple[str, object]] = [
            (f"s.{column} = ?", value)
            for column, value in (("agent", query.agent), ("channel", query.channel), ("workspace", query.workspace))
            if value is not None
        ]
        if query.status is not None:
            filters.append((_WITH_STATUS.get(query.status, "s.status = ?"), query.status))
        if query.since is not None:
            filters.append(("h.at >= ?", query.since))
        if query.before is not None:
            filters.append(("h.at < ?", query.before))
        if query.prefix is not None:
            filters.append(("s.session >= ? AND s.session < ? || char(0x10ffff)", query.prefix))
        if query.labels_beyond is not None:
            filters.append((_BEYOND, json.dumps(sorted(query.labels_beyond))))
        if query.without_agent is not None:
            filters.append((f"(s.agent <> ? OR {_ASKS})", query.without_agent))
        if query.text is not None:
            filters.append(("(instr(lower(s.name), lower(?)) OR instr(lower(s.workspace), lower(?)))", query.text))
        conditions = [condition for condition, _ in filters]
        values = [value for condition, value in filters for _ in range(condition.count("?"))]
        if (place := query.shown_at) is not None:
            conditions.append(f"{_ASKS_AT})" if place.reference is None else f"{_ASKS_AT} AND reference = ?)")
            values += [place.channel] if place.reference is None else [place.channel, place.reference]
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        is_by_name = query.prefix is not None or query.labels_beyond is not None or query.shown_at is not None
        select = _SESSIONS.format(_BY_NAME if is_by_name else "")
        order = "h.at DESC, s.session DESC" if query.by_activity else "s.created DESC, s.session DESC"
        rows = self._reader.all(f"{select}{where} ORDER BY {order} LIMIT ?", [*values, max(query.limit, 0)])
        return [_session(row) for row in rows]

    def approvals(self, query: ApprovalQuery) -> Sequence[ApprovalRow]:
        """Return approvals, newest first."""
        filters: list[tuple[str, object]] = [
            (f"{column} = ?", value) for column, value in (("session", query.session), ("approval", query.approval)) if value is not None
        ]
        conditions = [condition for condition, _ in filters] + (["status = 'open'"] if query.open_only else [])
        conditions += ["deadline IS NOT NULL"] if query.with_deadline else []
        values = [value for _, value in filters]
        if (place := query.shown_at) is not None:
            conditions.append(f"{_SHOWN_AT})" if place.reference is None else f"{_SHOWN_AT} AND w.reference = ?)")
            values += [place.channel] if place.reference is None else [place.channel, place.reference]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        # Few approvals are open, and many are settled.
        index = " INDEXED BY approval_open" if query.open_only and query.approval is None else ""
        select = _APPROVALS.format(_BRIEF if query.brief else _WHOLE)
        limit = _ALL if query.limit is None else max(query.limit, 0)
        rows = self._reader.all(f"{select}{index}{where} ORDER BY asked DESC, session DESC, approval DESC LIMIT ?", [*values, limit])
        return [_approval(row) for row in rows]

    def tally(self) -> Tally:
        """Count sessions and approvals by status."""
        sessions = Counter[str](dict(self._reader.all("SELECT status, count(*) FROM session GROUP BY status")))
        sessions["ready"] += sum(sessions.pop(ending, 0) for ending in _ENDINGS)
        for (asking,) in self._reader.all(_ASKING):
            sessions["ready"] -= asking
            sessions["waiting"] += asking
        asks: dict[str, int] = dict(self._reader.all("SELECT status, count(*) FROM approval WHERE status <> 'open' GROUP BY status"))
        [(asks["open"], oldest)] = self._reader.all("SELECT count(*), min(asked) FROM approval WHERE status = 'open'")
        return Tally(sessions, asks, oldest)

    def grants(self, *, all_of_them: bool = False, of: StreamId | None = None) -> Sequence[GrantRow]:
        """Return grants, newest first, of one stream or of all; revoked and used ones only with `all_of_them`."""
        where = "WHERE (? OR revoked IS NULL)" if of is None else "WHERE (? OR revoked IS NULL) AND stream = ?"
        query = f"SELECT body, stream, revoked FROM standing {where} ORDER BY at DESC, stream, id"  # noqa: S608 - one of two texts
        rows = self._reader.all(query, [all_of_them] if of is None else [all_of_them, of])
        return [GrantRow(Grant.model_validate_json(body), stream, revoked) for body, stream, revoked in rows]

    def session_at(self, route: Route) -> SessionId | None:
        """Return the session that a place leads to."""
        rows = self._reader.all("SELECT session FROM route WHERE channel = ? AND reference = ?", [route.channel, route.reference])
        return SessionId(rows[0][0]) if rows else None

    def routes_to(self, session: SessionId) -> Sequence[Route]:
        """Return the places that lead to a session, sorted by name."""
        rows = self._reader.all("SELECT channel, reference FROM route WHERE session = ? ORDER BY channel, reference", [session])
        return [Route(channel=channel, reference=reference) for channel, reference in rows]


def _session(row: Row) -> SessionRow:
    values: list[Any] = [*row]
    values[8], values[13] = bool(values[8]), tuple(sorted(json.loads(values[13])))
    ending = values[5] if values[5] in _ENDINGS else "done"
    if ending != "done" or values[5] == "ready":
        values[5] = "waiting" if values[12] else "ready"
    return SessionRow(*values, ending=ending)


def _approval(row: Row) -> ApprovalRow:
    values: list[Any] = [*row]
    values[4] = () if values[4] is None else COVERS.validate_json(values[4])
    return ApprovalRow(*values)
