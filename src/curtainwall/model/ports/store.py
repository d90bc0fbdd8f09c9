"""What the runtime wants of a store: the log, its inbox and leases, blobs, and the lists that are read from the log."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from curtainwall.model.blobs import BlobRef
from curtainwall.model.entries import Batch, Entry, FoldSnapshot, Outcome, Owner, Post, StreamEnd, Waiting
from curtainwall.model.ids import SessionId, StreamId
from curtainwall.model.listings import ApprovalQuery, ApprovalRow, GrantRow, SessionQuery, SessionRow, Tally
from curtainwall.model.people import Route

Concerns = Callable[[StreamId], bool]
"""Tells whether a watcher wants to hear of a stream."""


class Log(Protocol):
    """The append-only truth: every stream, one writer each, told apart by sequence numbers that start at 1."""

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        """Write the batch durably and return where its streams end now; raise `Conflict` or `TryLater` and write nothing."""
        ...

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Return the entries after a sequence number, oldest first."""
        ...

    def watch(self, concerns: Concerns | None = None) -> AbstractAsyncContextManager[AsyncIterator[frozenset[StreamId]]]:
        """Tell which streams changed, by any process; the empty set means that any may have. A post is told as `inbox_of(stream)`.

        Who names what concerns them is asked about each name at the moment it changes, on their own loop, and not woken by any other.
        """
        ...

    def head(self, stream: StreamId) -> int:
        """Return the sequence number of the last entry, 0 for none."""
        ...

    async def erase(self, stream: StreamId, batch: Batch) -> None:
        """Delete a stream and everything projected from it, together with the batch that records so.

        Raise `Conflict` where a command waits for the stream that the batch does not decide.
        """
        ...


class Inbox(Protocol):
    """Commands that wait for a stream's owner, durable and idempotent by key."""

    async def post(self, post: Post) -> None:
        """Keep the command durably; a key that was posted before changes nothing."""
        ...

    def waiting(self, stream: StreamId) -> Sequence[Waiting]:
        """Return the undecided commands in the order in which they came."""
        ...

    def streams_waiting(self) -> Sequence[StreamId]:
        """Return the streams for which a command waits, in their order by name."""
        ...

    def outcome(self, stream: StreamId, key: str) -> Outcome | None:
        """Return what became of a command, or None while it waits or is unknown."""
        ...


class Lease(Protocol):
    """The right to decide for one stream; it ends with the process at the latest."""

    def release(self) -> None:
        """Let someone else decide; calling it twice is harmless."""
        ...


class Leases(Protocol):
    """Who decides."""

    def take(self, stream: StreamId) -> Lease | None:
        """Return the lease, or None while another process holds it."""
        ...

    def owner(self, stream: StreamId) -> Owner | None:
        """Return who holds the lease, for a message."""
        ...

    def tell(self, news: StreamId) -> None:
        """Let every watcher of the log hear `wanted_lease(stream)` or `freed_lease(stream)`; a hint, which may get lost."""
        ...


class Blobs(Protocol):
    """Big payloads by their digest."""

    async def put(self, content: bytes) -> BlobRef:
        """Keep the bytes durably and return their name."""
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
        """Return standing answers of every session and project, or of one; revoked ones only when all are wanted."""
        ...

    def session_at(self, route: Route) -> SessionId | None:
        """Return the session that a place leads to."""
        ...

    def routes_to(self, session: SessionId) -> Sequence[Route]:
        """Return the places that lead to a session."""
        ...


class FoldSnapshots(Protocol):
    """Folds of sessions, kept outside the log so that a long log need not be read again. A cache: any of them may be gone at any time."""

    def load(self, stream: StreamId, fold: str) -> FoldSnapshot | None:
        """Return the snapshot of a stream that this version of the fold made, where it is ours and the log has the entry it ends with."""
        ...

    def save(self, snapshot: FoldSnapshot) -> bool:
        """Keep a snapshot in place of an older one, and tell whether that was possible."""
        ...

    def remove(self, stream: StreamId) -> None:
        """Remove the snapshot of a stream, where there is one."""
        ...

    def end(self, stream: StreamId) -> StreamEnd | None:
        """Return where the log ends by a head that we sealed; None where there is no stream, or its head is not ours."""
        ...


class Tallies(Protocol):
    """How many there are of everything, without a look at each."""

    def tally(self) -> Tally:
        """Count sessions and approvals by how they stand."""
        ...


class Marks(Protocol):
    """What a channel has to remember besides the log: how far it has told something, what it has told already."""

    def get(self, channel: str, name: str) -> str | None:
        """Return what was remembered under a name."""
        ...

    def all(self, channel: str) -> Mapping[str, str]:
        """Return everything that a channel remembers, by name."""
        ...

    async def set(self, channel: str, marks: Mapping[str, str | None]) -> None:
        """Remember these durably, all or none; None forgets a name."""
        ...
