"""Writes transactions: each batch is prepared, checked and written, then heads and seal are updated, all or nothing."""

import hmac
import sqlite3
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from curtainwall.model import (
    CHAIN_START,
    Batch,
    Broken,
    Conflict,
    Millis,
    Outcome,
    Post,
    StreamId,
    Write,
    encode_command,
    entry_hash,
    inbox_of,
    session_of,
)
from curtainwall.store.audit.chain import Seal, as_number, as_total, head_mac, read_seal
from curtainwall.store.audit.lines import AUDITED
from curtainwall.store.database import BUSY_MILLIS, STREAM_SHIFT, begin
from curtainwall.store.lists import Statement, forget, statements
from curtainwall.store.projection import changes, net


@dataclass(slots=True, eq=False)
class PreparedWrite:
    """Events as bytes, and the table changes they cause."""

    stream: StreamId
    expected: int
    events: Sequence[tuple[str, int, bytes]]
    rows: list[Statement]
    at: Millis
    audited: bool


@dataclass(slots=True, eq=False)
class PreparedBatch:
    """A batch that is ready for a transaction; `erase` names a stream to delete with it.

    A batch is doubtful if a process died after it was asked to write it: the batch may already be in the database.
    """

    writes: list[PreparedWrite]
    consumed: list[tuple[StreamId, str, Outcome]]
    posts: list[tuple[StreamId, str, str, bytes]]
    erase: StreamId | None = None
    is_doubtful: bool = False

    @property
    def touched(self) -> set[StreamId]:
        """Return the streams that change, and the inbox names of the streams that get commands."""
        names = {write.stream for write in self.writes if write.events}
        names.update(row[0] for row in self.consumed)
        names.update(inbox_of(row[0]) for row in self.posts)
        if self.erase is not None:
            names.add(self.erase)
        return names

    @property
    def audited(self) -> list[StreamId]:
        """Return the streams whose audit files need new lines."""
        return [write.stream for write in self.writes if write.audited]

    @property
    def ends(self) -> Mapping[StreamId, int]:
        """Return where the streams end once the batch is written."""
        return {write.stream: write.expected + len(write.events) for write in self.writes}


def prepare(batch: Batch, erase: StreamId | None = None) -> PreparedBatch:
    """Do all work on a batch that does not need the transaction."""
    if erase is not None and any(write.stream == erase and write.events for write in batch.writes):
        raise ValueError(f"`{erase}` cannot be erased and written to at once")
    return PreparedBatch(
        [_prepare_write(write) for write in batch.writes],
        [(row.stream, row.key, row.outcome) for row in batch.consumed],
        [prepare_post(post) for post in batch.posts],
        erase,
    )


def prepare_post(post: Post) -> tuple[StreamId, str, str, bytes]:
    """Return the inbox row of a command."""
    kind, payload = encode_command(post.command)
    return post.stream, post.key, kind, payload


def _prepare_write(write: Write) -> PreparedWrite:
    stream, events, encoded = write.stream, write.events, write.encoded
    audited = any(kind in AUDITED for kind, _, _ in encoded) and session_of(stream) is not None
    rows = [row for change in net([change for event in events for change in changes(stream, event)]) for row in statements(change)]
    return PreparedWrite(stream, write.expected, encoded, rows, events[-1].at if events else 0, audited)


_CACHED_HEADS = 4096


class _Head:
    """A stream's end as this transaction sees it."""

    __slots__ = ("at", "audited", "hash", "id", "mac", "name", "seq")

    def __init__(self, name: bytes, row: tuple[int, int, bytes, bytes, Millis, int] | None) -> None:
        self.name = name
        self.id, self.seq, self.hash, self.mac, self.at, self.audited = row or (0, 0, CHAIN_START, b"", 0, 0)


class Ledger:
    """The transactions of one connection. Heads are cached until another connection writes."""

    def __init__(self, db: sqlite3.Connection, key: bytes, busy_millis: int = BUSY_MILLIS) -> None:
        # `begin` does the waiting instead.
        db.execute("PRAGMA busy_timeout = 0")
        self._db = db
        self._busy_millis = busy_millis
        self._key = key
        self._heads: dict[StreamId, _Head] = {}
        self._seal: Seal | None = None
        self._seen = -1
        self._changed: dict[StreamId, _Head] = {}
        self._entries: list[tuple[int, str, int, bytes, bytes]] = []
        self._posts: list[tuple[StreamId, str, str, bytes]] = []
        self._decided: dict[tuple[StreamId, str], Outcome] = {}

    def data_version(self) -> int:
        """Return a number that changes when another connection writes."""
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def begin(self) -> None:
        """Begin a write transaction; nobody else can write until it ends."""
        begin(self._db, self._busy_millis)
        version = self.data_version()
        if version != self._seen or len(self._heads) > _CACHED_HEADS:
            self._heads.clear()
            self._seal = None
            self._seen = version

    def write(self, batch: PreparedBatch, now: Millis) -> Mapping[StreamId, int]:
        """Write one batch and return where its streams end; raise `Conflict` or `Broken` before anything of it is written."""
        if batch.is_doubtful and self.is_written(batch):
            return batch.ends
        ends = self._check(batch)
        if batch.erase is not None:
            self._erase(batch.erase, now)
        for write in batch.writes:
            if write.events:
                self._extend(write)
        self._posts += batch.posts
        for stream, key, outcome in batch.consumed:
            self._decided[stream, key] = outcome
        return ends

    def is_written(self, batch: PreparedBatch) -> bool:
        """Tell whether a batch is already in the database. It was committed as a whole, so checking one part is enough."""
        for write in batch.writes:
            if write.events:
                head = self._head(write.stream)
                place = (head.id << STREAM_SHIFT) + write.expected + len(write.events)
                row = self._db.execute("SELECT payload FROM entry WHERE place = ?", (place,)).fetchone()
                return row is not None and row[0] == write.events[-1][2]
        for stream, key, outcome in batch.consumed:
            row = self._db.execute("SELECT decided, seq, code, message FROM inbox WHERE stream = ? AND key = ?", (stream, key)).fetchone()
            return row is not None and row[0] is not None and Outcome(*row[1:]) == outcome
        query = "SELECT 1 FROM inbox WHERE stream = ? AND key = ?"
        return bool(batch.posts) and all(self._db.execute(query, row[:2]).fetchone() for row in batch.posts)

    def mark_audited(self, stream: StreamId, upto: int) -> None:
        """Record that the stream's audit file is complete up to an entry."""
        head = self._head(stream)
        if head.audited < upto <= head.seq:
            head.audited = upto
            self._changed[stream] = head

    def commit(self, now: Millis) -> None:
        """Make everything since `begin` durable."""
        self._flush(now)
        self._db.execute("COMMIT")

    @property
    def written(self) -> int | None:
        """How many entries were ever written, or None if the last transaction did not need to know."""
        return None if self._seal is None else self._seal.written

    def abandon(self) -> None:
        """Discard everything since `begin`."""
        self._forget()
        self._heads.clear()
        self._seal = None
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def count_at_least(self, written: int) -> None:
        """Continue counting from a higher number if entries that were written are known to be lost."""
        seal = self._sealed()
        self._write_seal(seal._replace(written=max(seal.written, written)))

    def _check(self, batch: PreparedBatch) -> dict[StreamId, int]:
        ends: dict[StreamId, int] = {}
        for write in batch.writes:
            stream = write.stream
            end = ends.get(stream)
            if end is None:
                end = self._head(stream).seq
            if end != write.expected:
                raise Conflict(f"`{stream}` ends at entry {end}, not {write.expected}: someone else wrote first")
            ends[stream] = end + len(write.events)
        for stream, key, _ in batch.consumed:
            if self._is_decided(stream, key):
                raise Conflict(f"command `{key}` for `{stream}` was decided by someone else")
        # INVARIANT: every check that can refuse a batch happens here, before anything of it is written.
        if batch.erase is not None:
            self._head(batch.erase)
            self._require_empty_inbox(batch.erase, {key for stream, key, _ in batch.consumed if stream == batch.erase})
        self._sealed()
        return ends

    def _require_empty_inbox(self, stream: StreamId, decided: Set[str]) -> None:
        waiting = {row[1] for row in self._posts if row[0] == stream and not self._is_decided(stream, row[1])}
        rows = self._db.execute("SELECT key FROM inbox WHERE stream = ? AND decided IS NULL", (stream,))
        waiting.update(key for (key,) in rows if (stream, key) not in self._decided)
        if waiting - decided:
            raise Conflict(f"a command for `{stream}` came meanwhile")

    def _head(self, stream: StreamId) -> _Head:
        head = self._heads.get(stream)
        if head is None:
            row = self._db.execute("SELECT id, seq, hash, mac, at, audited FROM head WHERE stream = ?", (stream,)).fetchone()
            head = _Head(stream.encode(), row)
            # INVARIANT: a head that is not ours is never extended, or our MAC would launder it.
            if row and not hmac.compare_digest(head.mac, head_mac(self._key, head.name, head.seq, head.hash)):
                raise Broken(f"the head of `{stream}` was forged: run `audit verify`, put back a copy that passes")
            self._heads[stream] = head
        return head

    def _extend(self, write: PreparedWrite) -> None:
        head = self._head(write.stream)
        if not head.id:
            head.id = self._db.execute("INSERT INTO head VALUES (NULL, ?, 0, x'', x'', 0, 0)", (write.stream,)).lastrowid or 0
        if not write.audited and head.audited == head.seq:
            head.audited += len(write.events)
        before, seq, base, name = head.hash, head.seq, head.id << STREAM_SHIFT, head.name
        for kind, version, payload in write.events:
            seq += 1
            before = entry_hash(before, name, seq, kind, version, payload)
            self._entries.append((base + seq, kind, version, payload, before))
        head.hash, head.seq, head.at = before, seq, write.at
        self._changed[write.stream] = head
        for text, values in write.rows:
            self._db.execute(text, values)

    def _is_decided(self, stream: StreamId, key: str) -> bool:
        if (stream, key) in self._decided:
            return True
        row = self._db.execute("SELECT decided FROM inbox WHERE stream = ? AND key = ?", (stream, key)).fetchone()
        return row is not None and row[0] is not None

    def _erase(self, stream: StreamId, now: Millis) -> None:
        self._flush(now)
        head = self._head(stream)
        if head.id:
            self._db.execute("DELETE FROM entry WHERE place > ? AND place < ?", (head.id << STREAM_SHIFT, (head.id + 1) << STREAM_SHIFT))
            self._db.execute("DELETE FROM head WHERE id = ?", (head.id,))
            seal = self._sealed()
            total = as_total(as_number(seal.total) - as_number(head.mac))
            self._write_seal(Seal(seal.streams - 1, seal.entries - head.seq, total, seal.written))
        self._db.execute("DELETE FROM inbox WHERE stream = ?", (stream,))
        forget(self._db, stream)
        self._heads.pop(stream, None)

    def _flush(self, now: Millis) -> None:
        """Write everything that was collected to the tables."""
        db = self._db
        if self._entries:
            db.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", self._entries)
        if self._changed:
            self._write_heads()
        if self._posts:
            db.executemany("INSERT OR IGNORE INTO inbox (stream, key, kind, payload) VALUES (?, ?, ?, ?)", self._posts)
        if self._decided:
            # The decision itself is in the log. The row only keeps the key from being used again.
            db.executemany(
                "INSERT INTO inbox (stream, key, kind, payload, decided, seq, code, message) VALUES (?, ?, '', x'', ?, ?, ?, ?)"
                " ON CONFLICT (stream, key) DO UPDATE SET payload = x'', decided = excluded.decided, seq = excluded.seq,"
                " code = excluded.code, message = excluded.message",
                [(stream, key, now, it.seq, it.code, it.message) for (stream, key), it in self._decided.items()],
            )
        self._forget()

    def _forget(self) -> None:
        self._entries.clear()
        self._changed.clear()
        self._posts.clear()
        self._decided.clear()

    def _write_heads(self) -> None:
        streams, entries, total, written = self._sealed()
        summed = as_number(total)
        rows: list[tuple[int, bytes, bytes, Millis, int, int]] = []
        for head in self._changed.values():
            mac = head_mac(self._key, head.name, head.seq, head.hash)
            summed += as_number(mac) - as_number(head.mac)
            streams += not head.mac
            head.mac = mac
            rows.append((head.seq, head.hash, mac, head.at, head.audited, head.id))
        self._db.executemany("UPDATE head SET seq = ?, hash = ?, mac = ?, at = ?, audited = ? WHERE id = ?", rows)
        self._write_seal(Seal(streams, entries + len(self._entries), as_total(summed), written + len(self._entries)))

    def _sealed(self) -> Seal:
        if self._seal is None:
            self._seal = read_seal(self._db, self._key)
            if self._seal is None:
                raise Broken("the seal over all heads is not ours: run `audit verify`, put back a copy that passes")
        return self._seal

    def _write_seal(self, seal: Seal) -> None:
        self._seal = seal
        self._db.execute("UPDATE seal SET streams = ?, entries = ?, total = ?, written = ?, mac = ?", (*seal, seal.mac(self._key)))
