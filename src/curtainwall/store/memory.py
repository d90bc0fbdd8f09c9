"""The store in memory: the same ports and the same refusals, for tests and for sessions that are not kept."""

import asyncio
import contextlib
import hashlib
import os
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Self, assert_never

from curtainwall.model import (
    CHAIN_START,
    ApprovalId,
    ApprovalQuery,
    ApprovalRow,
    Batch,
    BlobRef,
    Broken,
    CallId,
    Clock,
    Concerns,
    Conflict,
    Consumed,
    Entry,
    FoldSnapshots,
    GrantId,
    GrantRow,
    Millis,
    NotFound,
    Outcome,
    Owner,
    Post,
    Route,
    SessionId,
    SessionQuery,
    SessionRow,
    ShownAt,
    StreamId,
    Tally,
    TurnEnding,
    Waiting,
    Write,
    decode_command,
    encode_command,
    entry_hash,
    inbox_of,
    session_of,
)
from curtainwall.store.disk.marks import MemoryMarks
from curtainwall.store.disk.watchers import Watcher
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

# The projection stores these instead of `ready` after a turn that did not end well.
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
        """Return sessions, newest first. `since` and `before` refer to the last change, `text` to name and workspace."""
        rows = [
            row
            for row in map(self._completed, self._sessions.values())
            if _fits(row, query) and (query.shown_at is None or self._is_shown(row.session, query.shown_at))
        ]
        rows.sort(key=lambda row: (row.changed if query.by_activity else row.created, row.session), reverse=True)
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
        """Count sessions and approvals by status."""
        asked = [row.asked for row in self._approvals.values() if row.status == "open"]
        sessions = Counter(row.status for row in map(self._completed, self._sessions.values()))
        return Tally(sessions, Counter(row.status for row in self._approvals.values()), min(asked, default=None))

    def grants(self, *, all_of_them: bool = False, of: StreamId | None = None) -> Sequence[GrantRow]:
        """Return grants, newest first, of one stream or of all; revoked and used ones only with `all_of_them`."""
        rows = [row for row in self._grants.values() if (all_of_them or row.revoked is None) and of in (None, row.stream)]
        return sorted(rows, key=lambda row: (-row.grant.at, row.stream, row.grant.id))

    def session_at(self, route: Route) -> SessionId | None:
        """Return the session that a place leads to."""
        return self._routes.get(route)

    def routes_to(self, session: SessionId) -> Sequence[Route]:
        """Return the places that lead to a session, sorted by name."""
        routes = (route for route, target in self._routes.items() if target == session)
        return sorted(routes, key=lambda route: (route.channel, route.reference))

    def touch(self, stream: StreamId, at: Millis) -> None:
        """Record when a session last changed."""
        session = session_of(stream)
        if session is not None and session in self._sessions:
            self._sessions[session] = replace(self._sessions[session], changed=at)

    def forget(self, stream: StreamId) -> None:
        """Delete everything that was projected from a stream."""
        self._grants = {key: row for key, row in self._grants.items() if key[0] != stream}
        session = session_of(stream)
        if session is not None:
            self._sessions.pop(session, None)
            self._labels.pop(session, None)
            self._shown.pop(session, None)
            self._calls = {key: tool for key, tool in self._calls.items() if key[0] != session}
            self._approvals = {key: row for key, row in self._approvals.items() if key[0] != session}

    def apply(self, change: Change) -> None:
        """Apply one change."""
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
            case SessionUnlocked(session):
                if session in self._sessions:
                    self._sessions[session] = replace(self._sessions[session], status="ready")
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
                self._routes = {route: target for route, target in self._routes.items() if target != session}
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


class _InboxRow:
    """A command and its outcome."""

    def __init__(self, row: int, kind: str, payload: bytes) -> None:
        self.row, self.kind, self.payload = row, kind, payload
        self.outcome: Outcome | None = None


class MemoryDisk:
    """The common part of several stores, as processes share a home. It exists as long as something refers to it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.entries: dict[StreamId, list[Entry]] = {}
        self.inbox: dict[tuple[StreamId, str], _InboxRow] = {}
        self.rows = 0
        self.owners: dict[StreamId, Owner] = {}
        self.blobs: dict[str, bytes] = {}
        self.index = MemoryIndex()
        self.marks: dict[tuple[str, str], str] = {}
        self.watchers: set[Watcher] = set()

    def changed(self, names: frozenset[StreamId]) -> None:
        """Notify all watchers."""
        for watcher in list(self.watchers) if names else ():
            with contextlib.suppress(RuntimeError):
                watcher.loop.call_soon_threadsafe(watcher.tell, names)


class MemoryLog:
    """The append-only log, for the lifetime of the process."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        """Write the batch and return where its streams end; or raise `Conflict` and write nothing."""
        return await self._write(batch, None)

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Return the entries after a sequence number, oldest first."""
        entries = self._disk.entries.get(stream, [])[max(after, 0) :]
        return entries if limit is None else entries[: max(limit, 0)]

    @contextlib.asynccontextmanager
    async def _watch(self, concerns: Concerns | None) -> AsyncGenerator[AsyncIterator[frozenset[StreamId]]]:
        watcher = Watcher(concerns)
        self._disk.watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._disk.watchers.discard(watcher)

    def watch(self, concerns: Concerns | None = None) -> AbstractAsyncContextManager[AsyncIterator[frozenset[StreamId]]]:
        """Yield the streams that any store on the same disk changed."""
        return self._watch(concerns)

    def head(self, stream: StreamId) -> int:
        """Return the sequence number of the last entry, 0 for none."""
        return len(self._disk.entries.get(stream, ()))

    async def erase(self, stream: StreamId, batch: Batch) -> None:
        """Delete a stream, its inbox and its projections, together with the batch that records this and decides pending commands."""
        if any(write.stream == stream and write.events for write in batch.writes):
            raise ValueError(f"`{stream}` cannot be erased and written to at once")
        await self._write(batch, stream)

    async def _write(self, batch: Batch, erase: StreamId | None) -> Mapping[StreamId, int]:
        encoded = [write.encoded for write in batch.writes]
        with self._disk.lock:
            ends = self._check(batch)
            if erase is not None:
                self._erase(erase, {it.key for it in batch.consumed if it.stream == erase})
            for write, events in zip(batch.writes, encoded, strict=True):
                self._extend(write, events)
            for post in batch.posts:
                _add_post(self._disk, post)
            for consumed in batch.consumed:
                self._consume(consumed)
        changed = {write.stream for write in batch.writes if write.events} | {it.stream for it in batch.consumed}
        changed |= {inbox_of(post.stream) for post in batch.posts}
        self._disk.changed(frozenset(changed | ({erase} if erase else set())))
        # Let others run, as a durable write would.
        await asyncio.sleep(0)
        return ends

    def _check(self, batch: Batch) -> dict[StreamId, int]:
        ends: dict[StreamId, int] = {}
        for write in batch.writes:
            end = ends.get(write.stream, self.head(write.stream))
            if end != write.expected:
                raise Conflict(f"`{write.stream}` ends at entry {end}, not {write.expected}: someone else wrote first")
            ends[write.stream] = end + len(write.events)
        for consumed in batch.consumed:
            row = self._disk.inbox.get((consumed.stream, consumed.key))
            if row is not None and row.outcome is not None:
                raise Conflict(f"command `{consumed.key}` for `{consumed.stream}` was decided by someone else")
        return ends

    def _extend(self, write: Write, events: Sequence[tuple[str, int, bytes]]) -> None:
        if not events:
            return
        entries = self._disk.entries.setdefault(write.stream, [])
        for event, (kind, version, payload) in zip(write.events, events, strict=True):
            before = entries[-1].hash if entries else CHAIN_START
            seq = len(entries) + 1
            entries.append(
                Entry(write.stream, seq, kind, version, payload, entry_hash(before, write.stream.encode(), seq, kind, version, payload))
            )
            for change in changes(write.stream, event):
                self._disk.index.apply(change)
        self._disk.index.touch(write.stream, write.events[-1].at)

    def _consume(self, consumed: Consumed) -> None:
        row = self._disk.inbox.get((consumed.stream, consumed.key))
        if row is None:
            self._disk.rows += 1
            row = self._disk.inbox[consumed.stream, consumed.key] = _InboxRow(self._disk.rows, "", b"")
        row.outcome = consumed.outcome

    def _erase(self, stream: StreamId, decided: Set[str]) -> None:
        if any(owner == stream and row.outcome is None and key not in decided for (owner, key), row in self._disk.inbox.items()):
            raise Conflict(f"a command for `{stream}` came meanwhile")
        self._disk.entries.pop(stream, None)
        self._disk.index.forget(stream)
        for key in [key for key in self._disk.inbox if key[0] == stream]:
            del self._disk.inbox[key]


def _add_post(disk: MemoryDisk, post: Post) -> None:
    """Put a command into the inbox unless its key is already there."""
    if (post.stream, post.key) not in disk.inbox:
        disk.rows += 1
        disk.inbox[post.stream, post.key] = _InboxRow(disk.rows, *encode_command(post.command))


class MemoryInbox:
    """Pending commands."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    async def post(self, post: Post) -> None:
        """Store the command. A key that was posted before changes nothing."""
        with self._disk.lock:
            _add_post(self._disk, post)
        self._disk.changed(frozenset({inbox_of(post.stream)}))
        await asyncio.sleep(0)

    def waiting(self, stream: StreamId) -> Sequence[Waiting]:
        """Return the undecided commands in order of arrival."""
        with self._disk.lock:
            rows = [(key, row) for (owner, key), row in self._disk.inbox.items() if owner == stream and row.outcome is None]
        rows.sort(key=lambda pair: pair[1].row)
        return [Waiting(row.row, stream, key, decode_command(row.kind, row.payload)) for key, row in rows]

    def streams_waiting(self) -> Sequence[StreamId]:
        """Return the streams with undecided commands, sorted by name."""
        with self._disk.lock:
            return sorted({stream for (stream, _), row in self._disk.inbox.items() if row.outcome is None})

    def outcome(self, stream: StreamId, key: str) -> Outcome | None:
        """Return a command's outcome, or None while it is undecided or if it is unknown."""
        row = self._disk.inbox.get((stream, key))
        return row.outcome if row else None


class MemoryLease:
    """One held lease."""

    def __init__(self, disk: MemoryDisk, stream: StreamId, owner: Owner) -> None:
        self._disk, self._stream, self._owner = disk, stream, owner

    def release(self) -> None:
        """Release the lease; calling it twice is harmless."""
        with self._disk.lock:
            if self._disk.owners.get(self._stream) is self._owner:
                del self._disk.owners[self._stream]


class MemoryLeases:
    """The leases that the stores of one disk take from each other."""

    def __init__(self, disk: MemoryDisk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._held: list[MemoryLease] = []
        self._is_closed = False

    def take(self, stream: StreamId) -> MemoryLease | None:
        """Return the lease, or None while someone else holds it."""
        with self._disk.lock:
            if stream in self._disk.owners:
                return None
            owner = self._disk.owners[stream] = Owner(os.getpid(), self._clock.now())
        lease = MemoryLease(self._disk, stream, owner)
        self._held.append(lease)
        return lease

    def owner(self, stream: StreamId) -> Owner | None:
        """Return the holder of the lease, for a message."""
        return self._disk.owners.get(stream)

    def tell(self, news: StreamId) -> None:
        """Notify every watcher of the log that a lease is wanted or free; does nothing after `close`."""
        if not self._is_closed:
            self._disk.changed(frozenset({news}))

    def close(self) -> None:
        """Release every lease taken here."""
        self._is_closed = True
        for lease in self._held:
            lease.release()
        self._held.clear()


class MemoryBlobs:
    """Big payloads by their digest."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    async def put(self, content: bytes) -> BlobRef:
        """Store the bytes and return a reference to them."""
        digest = hashlib.sha256(content).hexdigest()
        self._disk.blobs[digest] = bytes(content)
        return BlobRef(digest=digest, size=len(content))

    def get(self, digest: str) -> bytes:
        """Return the bytes, checked against their digest; raise `NotFound` or `Broken`."""
        content = self._disk.blobs.get(digest)
        if content is None:
            raise NotFound(f"blob `{digest[:80]}` is missing")
        if hashlib.sha256(content).hexdigest() != digest:
            raise Broken(f"blob `{digest}` was altered")
        return content


class MemoryStore:
    """All stores on a disk in memory. Two of these on one disk are like two processes on one home."""

    def __init__(self, clock: Clock, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.log = MemoryLog(self.disk)
        self.inbox = MemoryInbox(self.disk)
        self.leases = MemoryLeases(self.disk, clock)
        self.blobs = MemoryBlobs(self.disk)
        self.index = self.tallies = self.disk.index
        self.marks = MemoryMarks(self.disk.marks)
        # The disk ends with its process, so saving folds would be of no use.
        self.snapshots: FoldSnapshots | None = None

    def close(self) -> None:
        """Release the leases. The disk stays usable for other stores."""
        self.leases.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
