"""The protocols of a store: the log, its inbox and leases, blobs, and the lists that are read from the log."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from curtainwall.model.blobs import BlobRef
from curtainwall.model.entries import Batch, Entry, FoldSnapshot, Outcome, Owner, Post, StreamEnd, Waiting
from curtainwall.model.ids import SessionId, StreamId
from curtainwall.model.listings import ApprovalQuery, ApprovalRow, GrantRow, SessionQuery, SessionRow, Tally
from curtainwall.model.people import Route

Concerns = Callable[[StreamId], bool]
"""Tells whether a watcher wants to be notified of a stream."""


class Log(Protocol):
    """The append-only truth. Each stream has one writer, and its entries have sequence numbers that start at 1."""

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        """Write the batch durably and return the new ends of its streams; or write nothing, and raise `Conflict` or `TryLater`."""
        ...

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Return the entries after a sequence number, oldest first."""
        ...

    def watch(self, concerns: Concerns | None = None) -> AbstractAsyncContextManager[AsyncIterator[frozenset[StreamId]]]:
        """Yield which streams were changed, by any process; an empty set means that any may have. A post is reported as `inbox_of(stream)`.

        With `concerns`, the caller is asked about each name when it changes, on its own loop, and is not woken for other names.
        """
        ...

    def head(self, stream: StreamId) -> int:
        """Return the sequence number of the last entry, 0 for none."""
        ...

    async def erase(self, stream: StreamId, batch: Batch) -> None:
        """Delete a stream and everything projected from it, together with the batch that records this.

        Raise `Conflict` if a command waits for the stream and the batch does not decide it.
        """
        ...


class Inbox(Protocol):
    """Commands that wait for a stream's owner, durable and idempotent by key."""

    async def post(self, post: Post) -> None:
        """Store the command durably; a repeated key changes nothing."""
        ...

    def waiting(self, stream: StreamId) -> Sequence[Waiting]:
        """Return the undecided commands in the order of their arrival."""
        ...

    def streams_waiting(self) -> Sequence[StreamId]:
        """Return the streams for which a command waits, sorted by name."""
        ...

    def outcome(self, stream: StreamId, key: str) -> Outcome | None:
        """Return the outcome of a command, or None while it is undecided or unknown."""
        ...


class Lease(Protocol):
    """The right to decide for one stream; it ends with the process at the latest."""

    def release(self) -> None:
        """Release the lease; a second call does nothing."""
        ...


class Leases(Protocol):
    """The leases: which process decides for a stream."""

    def take(self, stream: StreamId) -> Lease | None:
        """Return the lease, or None while another process holds it."""
        ...

    def owner(self, stream: StreamId) -> Owner | None:
        """Return the holder of the lease, for messages."""
        ...

    def tell(self, news: StreamId) -> None:
        """Notify every watcher of the log of `wanted_lease(stream)` or `freed_lease(stream)`; a hint that may get lost."""
        ...


class Blobs(Protocol):
    """Big payloads by their digest."""

    async def put(self, content: bytes) -> BlobRef:
        """Store the bytes durably and return their digest."""
        ...

    def get(self, digest: str) -> bytes:
        """Return the bytes, checked against their digest; raise `NotFound` or `Broken`."""
        ...


class Index(Protocol):
    """Lists and searches: projections of the log, rebuildable, never read by a decision."""

    def sessions(self, query: SessionQuery) -> Sequence[SessionRow]:
        """Return sessions, newest first."""
        ...

    def approvals(self, query: ApprovalQuery) -> Sequence[ApprovalRow]:
        """Return approvals, newest first."""
        ...

    def grants(self, *, all_of_them: bool = False, of: StreamId | None = None) -> Sequence[GrantRow]:
        """Return the standing answers of all sessions and projects, or of one stream; include revoked ones only on request."""
        ...

    def session_at(self, route: Route) -> SessionId | None:
        """Return the session that a place leads to."""
        ...

    def routes_to(self, session: SessionId) -> Sequence[Route]:
        """Return the places that lead to a session."""
        ...


class FoldSnapshots(Protocol):
    """Folds of sessions, stored outside the log so that a long log need not be read again. A cache: any may vanish at any time."""

    def load(self, stream: StreamId, fold: str) -> FoldSnapshot | None:
        """Return a stream's snapshot from this version of the fold, if we sealed it and the log has the entry it ends with."""
        ...

    def save(self, snapshot: FoldSnapshot) -> bool:
        """Store a snapshot over any older one, and return whether that worked."""
        ...

    def remove(self, stream: StreamId) -> None:
        """Remove the snapshot of a stream, if there is one."""
        ...

    def end(self, stream: StreamId) -> StreamEnd | None:
        """Return the log's end according to its sealed head, or None if there is no stream or its head is not ours."""
        ...


class Tallies(Protocol):
    """Counts, without reading each row."""

    def tally(self) -> Tally:
        """Count the sessions and approvals in each state."""
        ...


class Marks(Protocol):
    """What a channel remembers outside the log: its position, and what it has already sent."""

    def get(self, channel: str, name: str) -> str | None:
        """Return the value stored under a name."""
        ...

    def all(self, channel: str) -> Mapping[str, str]:
        """Return all values of a channel, by name."""
        ...

    async def set(self, channel: str, marks: Mapping[str, str | None]) -> None:
        """Store these values durably, all or none; None removes a name."""
        ...
