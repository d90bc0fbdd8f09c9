"""Row changes in, rows out: the projections as plain dictionaries, for the store in memory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from curtainwall.model import (
    ApprovalId,
    ApprovalQuery,
    ApprovalRow,
    CallId,
    GrantId,
    GrantRow,
    Millis,
    Route,
    SessionId,
    SessionQuery,
    SessionRow,
    ShownAt,
    StreamId,
    Tally,
    TurnEnding,
    session_of,
)
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

# What the projection notes in the place of `ready` after a turn that did not end well.
_ENDINGS: Mapping[str, TurnEnding] = {"failed": "failed", "interrupted": "interrupted"}


class MemoryIndex:
    """Lists of sessions, approvals and grants."""

    def __init__(self) -> None:
        self._sessions: dict[SessionId, SessionRow] = {}
        self._labels: dict[SessionId, set[str]] = {}
        self._calls: dict[tuple[SessionId, CallId], str] = {}
        self._approvals: dict[tuple[SessionId, ApprovalId], ApprovalRow] = {}
        self._grants: dict[tuple[StreamId, GrantId], GrantRow] = {}
        self._routes: dict[Route, SessionId] = {}
        self._shown: dict[SessionId, set[Route]] = {}

    def sessions(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first; `since` and `before` speak of the last change, `text` of name and workspace."""
        rows = [
            row
            for row in map(self._completed, self._sessions.values())
            if _fits(row, query) and (query.shown_at is None or self._is_shown(row.session, query.shown_at))
        ]
        rows.sort(key=lambda row: (row.created, row.session), reverse=True)
        return rows[: max(query.limit, 0)]

    def approvals(self, query: ApprovalQuery) -> Sequence[ApprovalRow]:
        """Return approvals, newest first."""
        rows = [
            row
            for row in self._approvals.values()
            if query.session in (None, row.session)
            and query.approval in (None, row.approval)
            and (row.status == "open" or not query.open_only)
            and (row.deadline is not None or not query.with_deadline)
            and (query.shown_at is None or self._is_shown(row.session, query.shown_at))
        ]
        rows.sort(key=lambda row: (row.asked, row.session, row.approval), reverse=True)
        rows = rows if query.limit is None else rows[: max(query.limit, 0)]
        return [replace(row, shown="", covers=()) for row in rows] if query.brief else rows

    def tally(self) -> Tally:
        """Count sessions and approvals by how they stand."""
        asked = [row.asked for row in self._approvals.values() if row.status == "open"]
        sessions = Counter(row.status for row in map(self._completed, self._sessions.values()))
        return Tally(sessions, Counter(row.status for row in self._approvals.values()), min(asked, default=None))

    def grants(self, *, all_of_them: bool = False, of: StreamId | None = None) -> Sequence[GrantRow]:
        """Return standing answers, newest first, of all sessions and projects or of one; revoked and used ones only when all are wanted."""
        rows = [row for row in self._grants.values() if (all_of_them or row.revoked is None) and of in (None, row.stream)]
        return sorted(rows, key=lambda row: (-row.grant.at, row.stream, row.grant.id))

    def session_at(self, route: Route) -> SessionId | None:
        """Return the session that a place leads to."""
        return self._routes.get(route)

    def routes_to(self, session: SessionId) -> Sequence[Route]:
        """Return the places that lead to a session, in their order by name."""
        found = (route for route, led in self._routes.items() if led == session)
        return sorted(found, key=lambda route: (route.channel, route.reference))

    def touch(self, stream: StreamId, at: Millis) -> None:
        """Note when a session last changed."""
        session = session_of(stream)
        if session is not None and session in self._sessions:
            self._sessions[session] = replace(self._sessions[session], changed=at)

    def forget(self, stream: StreamId) -> None:
        """Take out everything that was told from a stream."""
        self._grants = {key: row for key, row in self._grants.items() if key[0] != stream}
        session = session_of(stream)
        if session is not None:
            self._sessions.pop(session, None)
            self._labels.pop(session, None)
            self._shown.pop(session, None)
            self._calls = {key: tool for key, tool in self._calls.items() if key[0] != session}
            self._approvals = {key: row for key, row in self._approvals.items() if key[0] != session}

    def apply(self, change: Change) -> None:
        """Make one change."""
        match change:
            case SessionListed(session, it):
                place, mode = it.workspace, it.mode.value
                row = SessionRow(
                    session,
                    it.name,
                    it.agent,
                    it.model,
                    it.channel,
                    "opening",
                    mode,
                    place.path,
                    place.own,
                    it.at,
                    it.at,
                    0,
                    0,
                    (),
                    it.parent,
                )
                self._sessions.setdefault(session, row)
            case SessionSet(session, column, value):
                if session in self._sessions and (column, self._sessions[session].status) != ("status", "closed"):
                    self._sessions[session] = replace(self._sessions[session], **{column: value})
            case TurnBegun(session):
                if session in self._sessions:
                    row = self._sessions[session]
                    self._sessions[session] = replace(row, turns=row.turns + 1, status="closed" if row.status == "closed" else "working")
            case LabelsSeen(session, labels):
                self._labels.setdefault(session, set()).update(labels)
            case CallNamed(session, call, tool):
                self._calls[session, call] = tool
            case CallForgotten(session, call):
                self._calls.pop((session, call), None)
            case GrantListed(stream, grant):
                self._grants.setdefault((stream, grant.id), GrantRow(grant, stream, None))
            case GrantEnded(stream, grant, at):
                if (stream, grant) in self._grants and self._grants[stream, grant].revoked is None:
                    self._grants[stream, grant] = replace(self._grants[stream, grant], revoked=at)
            case ApprovalListed() | ApprovalSettled():
                self._apply_approval(change)
            case RouteLeads(route, session):
                self._routes.pop(route, None)
                if session is not None:
                    self._routes[route] = session
            case RoutesEnded(session):
                self._routes = {route: led for route, led in self._routes.items() if led != session}
            case AsksShown(session, route, shown):
                places = self._shown.setdefault(session, set())
                (places.add if shown else places.discard)(route)
            case _:
                assert_never(change)

    def _apply_approval(self, change: ApprovalListed | ApprovalSettled) -> None:
        match change:
            case ApprovalListed(session, it):
                tool = self._calls.get((session, it.call), "")
                row = ApprovalRow(it.approval, session, tool, it.shown, it.covers, it.digest, it.at, it.deadline, "open", None, "", "")
                self._approvals.setdefault((session, it.approval), row)
            case ApprovalSettled(session, approval, status, at, by, reason):
                row = self._approvals.get((session, approval))
                if row is not None and row.status == "open":
                    self._approvals[session, approval] = replace(row, status=status, settled=at, settled_by=by, reason=reason)

    def _is_shown(self, session: SessionId, at: ShownAt) -> bool:
        places = self._shown.get(session, ())
        return any(place.channel == at.channel and at.reference in (None, place.reference) for place in places)

    def _completed(self, row: SessionRow) -> SessionRow:
        pending = sum(it.session == row.session and it.status == "open" for it in self._approvals.values())
        ending = _ENDINGS.get(row.status, "done")
        status = ("waiting" if pending else "ready") if ending != "done" or row.status == "ready" else row.status
        return replace(row, status=status, ending=ending, pending=pending, labels=tuple(sorted(self._labels.get(row.session, ()))))


def _fits(row: SessionRow, query: SessionQuery) -> bool:
    return (
        query.status in (None, row.status)
        and query.agent in (None, row.agent)
        and query.channel in (None, row.channel)
        and query.workspace in (None, row.workspace)
        and (query.labels_beyond is None or not query.labels_beyond.issuperset(row.labels))
        and (query.since is None or row.changed >= query.since)
        and (query.before is None or row.changed < query.before)
        and (query.prefix is None or row.session.startswith(query.prefix))
        and (query.without_agent != row.agent or row.pending > 0)
        and (query.text is None or _folded(query.text) in _folded(row.name) or _folded(query.text) in _folded(row.workspace))
    )


def _folded(text: str) -> str:
    """Return the text with ASCII letters in lower case, as SQLite folds it."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)
