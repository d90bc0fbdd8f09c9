"""The store in memory: the same ports and the same refusals, for tests and for sessions that nobody keeps."""

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from typing import Self

from curtainwall.model import (
    Batch,
    BlobRef,
    Broken,
    Clock,
    Concerns,
    Conflict,
    Consumed,
    Entry,
    NotFound,
    Outcome,
    Owner,
    Post,
    StreamId,
    Waiting,
    Write,
    decode_command,
    encode_command,
    inbox_of,
)
from curtainwall.store.audit.chain import START, link
from curtainwall.store.disk.marks import MemoryMarks
from curtainwall.store.disk.watchers import Watcher
from curtainwall.store.in_memory.index import MemoryIndex
from curtainwall.store.projection import changes


class _InboxRow:
    """A command, and what became of it."""

    def __init__(self, row: int, kind: str, payload: bytes) -> None:
        self.row, self.kind, self.payload = row, kind, payload
        self.outcome: Outcome | None = None


class MemoryDisk:
    """What several stores share, as processes share a home; it lives as long as someone holds it."""

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
        """Tell everyone who watches."""
        for watcher in list(self.watchers) if names else ():
            with contextlib.suppress(RuntimeError):
                watcher.loop.call_soon_threadsafe(watcher.tell, names)


class MemoryLog:
    """The append-only truth, for as long as the process lives."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        """Write the batch and return where its streams end now; raise `Conflict` and write nothing."""
        return await self._write(batch, None)

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Return the entries after a sequence number, oldest first."""
        found = self._disk.entries.get(stream, [])[max(after, 0) :]
        return found if limit is None else found[: max(limit, 0)]

    @contextlib.asynccontextmanager
    async def _watch(self, concerns: Concerns | None) -> AsyncGenerator[AsyncIterator[frozenset[StreamId]]]:
        watcher = Watcher(concerns)
        self._disk.watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._disk.watchers.discard(watcher)

    def watch(self, concerns: Concerns | None = None) -> AbstractAsyncContextManager[AsyncIterator[frozenset[StreamId]]]:
        """Tell which streams changed, by any store on the same disk."""
        return self._watch(concerns)

    def head(self, stream: StreamId) -> int:
        """Return the sequence number of the last entry, 0 for none."""
        return len(self._disk.entries.get(stream, ()))

    async def erase(self, stream: StreamId, batch: Batch) -> None:
        """Delete a stream, its inbox and everything projected from it, together with the batch that records so and decides what waits."""
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
                _keep(self._disk, post)
            for consumed in batch.consumed:
                self._consume(consumed)
        told = {write.stream for write in batch.writes if write.events} | {it.stream for it in batch.consumed}
        told |= {inbox_of(post.stream) for post in batch.posts}
        self._disk.changed(frozenset(told | ({erase} if erase else set())))
        # A durable write lets others run meanwhile; so does this one.
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
            before = entries[-1].hash if entries else START
            seq = len(entries) + 1
            entries.append(
                Entry(write.stream, seq, kind, version, payload, link(before, write.stream.encode(), seq, kind, version, payload))
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
        if any(of == stream and row.outcome is None and key not in decided for (of, key), row in self._disk.inbox.items()):
            raise Conflict(f"a command for `{stream}` came meanwhile")
        self._disk.entries.pop(stream, None)
        self._disk.index.forget(stream)
        for key in [key for key in self._disk.inbox if key[0] == stream]:
            del self._disk.inbox[key]


def _keep(disk: MemoryDisk, post: Post) -> None:
    """Put a command into the inbox unless its key is there."""
    if (post.stream, post.key) not in disk.inbox:
        disk.rows += 1
        disk.inbox[post.stream, post.key] = _InboxRow(disk.rows, *encode_command(post.command))


class MemoryInbox:
    """Commands that wait."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    async def post(self, post: Post) -> None:
        """Keep the command; a key that was posted before changes nothing."""
        with self._disk.lock:
            _keep(self._disk, post)
        self._disk.changed(frozenset({inbox_of(post.stream)}))
        await asyncio.sleep(0)

    def waiting(self, stream: StreamId) -> Sequence[Waiting]:
        """Return the undecided commands in the order in which they came."""
        with self._disk.lock:
            rows = [(key, row) for (owner, key), row in self._disk.inbox.items() if owner == stream and row.outcome is None]
        rows.sort(key=lambda pair: pair[1].row)
        return [Waiting(row.row, stream, key, decode_command(row.kind, row.payload)) for key, row in rows]

    def streams_waiting(self) -> Sequence[StreamId]:
        """Return the streams for which a command waits, in their order by name."""
        with self._disk.lock:
            return sorted({stream for (stream, _), row in self._disk.inbox.items() if row.outcome is None})

    def outcome(self, stream: StreamId, key: str) -> Outcome | None:
        """Return what became of a command, or None while it waits or is unknown."""
        row = self._disk.inbox.get((stream, key))
        return row.outcome if row else None


class MemoryLease:
    """One held lease."""

    def __init__(self, disk: MemoryDisk, stream: StreamId, owner: Owner) -> None:
        self._disk, self._stream, self._owner = disk, stream, owner

    def release(self) -> None:
        """Let someone else decide; calling it twice is harmless."""
        with self._disk.lock:
            if self._disk.owners.get(self._stream) is self._owner:
                del self._disk.owners[self._stream]


class MemoryLeases:
    """Who decides, among the stores of one disk."""

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
        """Return who holds the lease, for a message."""
        return self._disk.owners.get(stream)

    def tell(self, news: StreamId) -> None:
        """Let every watcher of the log hear that a lease is wanted or free; from a store that is closed nobody does."""
        if not self._is_closed:
            self._disk.changed(frozenset({news}))

    def close(self) -> None:
        """Release everything that was taken here."""
        self._is_closed = True
        for lease in self._held:
            lease.release()
        self._held.clear()


class MemoryBlobs:
    """Big payloads by their digest."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    async def put(self, content: bytes) -> BlobRef:
        """Keep the bytes and return their name."""
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
    """Everything that is kept, on a disk in memory; two stores on one disk are like two processes on one home."""

    def __init__(self, clock: Clock, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.log = MemoryLog(self.disk)
        self.inbox = MemoryInbox(self.disk)
        self.leases = MemoryLeases(self.disk, clock)
        self.blobs = MemoryBlobs(self.disk)
        self.index = self.tallies = self.disk.index
        self.marks = MemoryMarks(self.disk.marks)

    def close(self) -> None:
        """Release the leases; the disk stays for whoever holds it."""
        self.leases.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
