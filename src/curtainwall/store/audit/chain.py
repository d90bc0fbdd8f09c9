"""Binds the log together: each entry to the one before it, each head to a key outside the database, and all heads to one seal."""

import hmac
import json
import sqlite3
from collections.abc import Iterable
from typing import Literal, NamedTuple

from curtainwall.model import CHAIN_START, HOUSE, ExtensionNoted, SessionDeleted, StreamId, entry_hash, record, session_stream
from curtainwall.store.database import STREAM_SHIFT

_ROOM = 1 << 256
_ENTRIES = f"""
SELECT place & {(1 << STREAM_SHIFT) - 1}, CAST(kind AS TEXT), CAST(version AS INTEGER), CAST(payload AS BLOB), CAST(hash AS BLOB),
    typeof(kind) = 'text' AND typeof(version) = 'integer' AND typeof(payload) = 'blob' AND typeof(hash) = 'blob'
FROM entry WHERE place > ? AND place < ?
"""  # noqa: S608 - a number of ours

# The bounds on `place` keep SQLite from scanning anything but the house log.
_HOUSE_ENTRIES = f"""
SELECT e.payload FROM head h JOIN entry e ON e.place > h.id << {STREAM_SHIFT} AND e.place < (h.id + 1) << {STREAM_SHIFT}
WHERE h.stream = ? AND e.kind = ?
"""  # noqa: S608 - a number of ours

What = Literal["edited", "removed", "reordered", "cut off", "head forged", "stream missing", "older copy", "foreign schema", "list altered"]


@record
class ChainFault:
    """The first fault in the log: where, what kind, and an explanation. Without a stream, the log as a whole does not match its seal."""

    stream: StreamId | None
    seq: int | None
    what: What
    why: str

    def __str__(self) -> str:
        place = "the log" if self.stream is None else f"`{self.stream}`" if self.seq is None else f"`{self.stream}` entry {self.seq}"
        return f"{place}: {self.what}: {self.why}"


class Head(NamedTuple):
    """Where a stream ended at the time it was recorded."""

    stream: StreamId
    seq: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.hash.hex()} {self.seq} {json.dumps(self.stream)}"


def parse_head(line: str) -> Head:
    """Parse a printed head; raise ValueError for anything else."""
    digest, seq, stream = line.strip().split(" ", 2)
    name: object = json.loads(stream)
    if not isinstance(name, str) or len(digest) != 64:
        raise ValueError(f"not a head: `{line.strip()}`")
    return Head(StreamId(name), int(seq), bytes.fromhex(digest))


def head_mac(key: bytes, stream: bytes, seq: int, digest: bytes) -> bytes:
    """Return the MAC that proves that we left the stream at this entry."""
    return hmac.digest(key, b"head%d:%b%d:%b" % (len(stream), stream, seq, digest), "sha256")


class Seal(NamedTuple):
    """All heads together: how many streams and entries there are, the sum of the heads' MACs, and how many entries were ever written."""

    streams: int
    entries: int
    total: bytes
    written: int

    def mac(self, key: bytes) -> bytes:
        """Return the MAC that proves that these are all heads."""
        return hmac.digest(key, b"seal%d:%d:%d:%b" % (self.streams, self.entries, self.written, self.total), "sha256")


def read_seal(db: sqlite3.Connection, key: bytes) -> Seal | None:
    """Return the seal over all heads, or None if it is missing or not ours."""
    row = db.execute("SELECT streams, entries, CAST(total AS BLOB), written, CAST(mac AS BLOB) FROM seal").fetchone()
    if row is None:
        return None
    seal = Seal(*row[:4])
    return seal if hmac.compare_digest(row[4], seal.mac(key)) else None


def as_number(mac: bytes) -> int:
    """Return a head's MAC as a number; an empty one is 0."""
    return int.from_bytes(mac, "big")


def as_total(summed: int) -> bytes:
    """Return the sum of all heads' MACs for the seal. Addition is commutative, so an update costs the same for any number of streams."""
    return (summed % _ROOM).to_bytes(32, "big")


def write_seal(db: sqlite3.Connection, key: bytes) -> None:
    """Seal a log that is new or has a valid seal in an older format. An invalid seal is left as it is."""
    row = db.execute("SELECT streams, entries, CAST(total AS BLOB), written, CAST(mac AS BLOB) FROM seal").fetchone()
    if row is None:
        empty = Seal(0, 0, CHAIN_START, 0)
        db.execute("INSERT INTO seal (one, streams, entries, total, written, mac) VALUES (1, ?, ?, ?, ?, ?)", (*empty, empty.mac(key)))
    elif hmac.compare_digest(row[4], _mac_before_counting(key, *row[:3])):
        db.execute("UPDATE seal SET mac = ?", (Seal(*row[:4]).mac(key),))


def fits_older_seal(row: tuple[int, int, bytes, bytes], key: bytes) -> bool:
    """Tell whether a seal is ours in the older format, which did not count the entries ever written."""
    return hmac.compare_digest(row[3], _mac_before_counting(key, *row[:3]))


def _mac_before_counting(key: bytes, streams: int, entries: int, total: bytes) -> bytes:
    return hmac.digest(key, b"seal%d:%d:%b" % (streams, entries, total), "sha256")


def heads(db: sqlite3.Connection) -> list[Head]:
    """Return the end of every stream, to be kept elsewhere."""
    return [Head(StreamId(name), seq, digest) for name, seq, digest in db.execute("SELECT stream, seq, hash FROM head ORDER BY stream")]


def verify(db: sqlite3.Connection, key: bytes, stream: StreamId | None = None, against: Iterable[Head] = ()) -> ChainFault | None:
    """Return the first fault in the log or in one stream, or None. `against` are heads that were kept elsewhere."""
    db.execute("BEGIN")
    try:
        return _verify(db, key, stream, list(against))
    finally:
        db.execute("ROLLBACK")


def _verify(db: sqlite3.Connection, key: bytes, only: StreamId | None, against: list[Head]) -> ChainFault | None:
    for kind, name in db.execute("SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view') OR sql LIKE 'CREATE VIRTUAL%'"):
        return ChainFault(
            None, None, "foreign schema", f"the {kind} `{name}` in the database is not ours, and could show or change anything"
        )
    summed = entries = 0
    # Someone else may have stored values of other types. The casts make them comparable; they are never trusted.
    columns = "id, CAST(stream AS TEXT), CAST(seq AS INTEGER), CAST(hash AS BLOB), CAST(mac AS BLOB)"
    rows = db.execute(f"SELECT {columns} FROM head ORDER BY stream").fetchall()  # noqa: S608 - the text above
    for number, name, seq, digest, mac in rows:
        if only is None or name == only:
            fault = _walk(db, number, StreamId(name), Head(StreamId(name), seq, digest))
            if fault is None and not hmac.compare_digest(mac, head_mac(key, name.encode(), seq, digest)):
                fault = ChainFault(StreamId(name), seq, "head forged", "the stream's head does not carry our seal")
            if fault:
                return fault
        summed, entries = summed + as_number(mac), entries + seq
    names = {row[1] for row in rows}
    if only is not None and only not in names:
        return ChainFault(only, None, "stream missing", "there is no such stream")
    if fault := _check_kept(db, [head for head in against if only is None or head.stream == only]):
        return fault
    return _check_seal(db, key, (len(rows), entries, as_total(summed)), names) if only is None else None


def _check_seal(db: sqlite3.Connection, key: bytes, actual: tuple[int, int, bytes], names: set[str]) -> ChainFault | None:
    """Check what no single stream can show: that none is missing and none was set back."""
    for (lost,) in db.execute("SELECT 'session:' || session FROM session UNION SELECT stream FROM standing ORDER BY 1"):
        if lost not in names:
            return ChainFault(StreamId(lost), None, "stream missing", "lists still show it, but its entries and its head are gone")
    stray = db.execute(f"SELECT place FROM entry WHERE place >> {STREAM_SHIFT} NOT IN (SELECT id FROM head) ORDER BY place").fetchone()  # noqa: S608 - a number of ours
    if stray:
        return ChainFault(
            None, None, "stream missing", f"entry {stray[0] & (1 << STREAM_SHIFT) - 1} and others belong to a stream without a head"
        )
    seal = read_seal(db, key)
    if seal is None:
        return ChainFault(None, None, "head forged", "the seal over all heads is not ours")
    if seal.streams > actual[0]:
        return ChainFault(None, None, "stream missing", f"{seal.streams - actual[0]} of {seal.streams} streams are gone with their heads")
    if seal[:3] != actual:
        return ChainFault(
            None, None, "older copy", f"streams were set back or exchanged: {seal.entries} entries were sealed, {actual[1]} are here"
        )
    return None


def _walk(db: sqlite3.Connection, number: int, stream: StreamId, head: Head) -> ChainFault | None:
    name, before, expected = stream.encode(), CHAIN_START, 1
    base = number << STREAM_SHIFT
    rows = db.execute(f"{_ENTRIES} ORDER BY place", (base, (number + 1) << STREAM_SHIFT))
    for seq, kind, version, payload, digest, is_ours in rows:
        if seq != expected:
            return ChainFault(stream, expected, "removed", f"entry {seq} follows entry {expected - 1}")
        if seq > head.seq:
            return ChainFault(stream, seq, "head forged", f"the head ends at entry {head.seq}")
        if not is_ours or entry_hash(before, name, seq, kind, version, payload) != digest:
            if _is_elsewhere(db, base, name, (seq, kind, version, payload, digest)):
                return ChainFault(stream, seq, "reordered", "it is another entry of this stream")
            return ChainFault(stream, seq, "edited", "it does not fit its hash")
        before, expected = digest, seq + 1
    if expected <= head.seq:
        return ChainFault(stream, expected, "cut off", f"the head says that there are {head.seq} entries")
    if head.hash != before:
        return ChainFault(stream, head.seq, "head forged", "the head's hash is not that of the last entry")
    return None


def _is_elsewhere(db: sqlite3.Connection, base: int, name: bytes, row: tuple[int, str, int, bytes, bytes]) -> bool:
    """Tell whether a wrong entry belongs to another place in its stream: it was moved, with or without its hash."""
    own, kind, version, payload, digest = row
    before = CHAIN_START
    for seq, _, _, _, other, _ in db.execute(f"{_ENTRIES} ORDER BY place", (base, base + (1 << STREAM_SHIFT))):
        if seq != own and entry_hash(before, name, seq, kind, version, payload) == other:
            return True
        if any(entry_hash(other, name, place, kind, version, payload) == digest for place in {seq, seq + 1} - {own}):
            return True
        before = other
    return False


def _check_kept(db: sqlite3.Connection, kept: list[Head]) -> ChainFault | None:
    for stream, seq, digest in kept:
        row = db.execute(
            f"SELECT h.seq, e.hash FROM head h LEFT JOIN entry e ON e.place = (h.id << {STREAM_SHIFT}) + ? WHERE h.stream = ?",  # noqa: S608 - a number of ours
            (seq, stream),
        ).fetchone()
        if row is None:
            if stream not in deleted(db):
                return ChainFault(stream, None, "stream missing", f"it had {seq} entries when its head was kept")
        elif row[0] < seq:
            return ChainFault(stream, row[0] + 1, "older copy", f"it had {seq} entries when its head was kept")
        elif row[1] != digest:
            return ChainFault(stream, seq, "older copy", "the entry is another than when its head was kept")
    return None


def named_in(db: sqlite3.Connection, extension: str, key: str) -> set[StreamId]:
    """Return the streams that an extension's notes in the house log list under a key."""
    rows = db.execute(_HOUSE_ENTRIES, (HOUSE, ExtensionNoted.__name__))
    notes = (json.loads(payload) for (payload,) in rows)
    return {StreamId(name) for note in notes if note["extension"] == extension for name in note["data"].get(key, ())}


def deleted(db: sqlite3.Connection) -> set[StreamId]:
    """Return the streams of sessions that the house log records as deleted on purpose."""
    rows = db.execute(_HOUSE_ENTRIES, (HOUSE, SessionDeleted.__name__))
    return {session_stream(json.loads(payload)["session"]) for (payload,) in rows}
