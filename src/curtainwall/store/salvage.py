"""A damaged database is set aside, and every stream in it that is whole and proven goes on in a new one; a loss is accepted by a human."""

import hmac
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue

from curtainwall.model import HOUSE, Clock, ExtensionNoted, Millis, StreamId, TryLater, encode_event
from curtainwall.store.audit import chain
from curtainwall.store.audit.trail import Decode
from curtainwall.store.database import STREAM_SHIFT, begin, connect, create
from curtainwall.store.disk.leases import lock_byte
from curtainwall.store.disk.ledger import Ledger, PreparedBatch, PreparedWrite
from curtainwall.store.disk.store import rebuild_lists
from curtainwall.store.home import ASIDE, CUT_OFF, StorePaths, make_audit_key, name_aside, private_file, read_audit_key, sync_directory
from curtainwall.store.loss import RESCUE, CommitNote, Loss, loss_in, loss_of_database

LOSS: Final = "loss-accepted"
"""The name under which the house's log tells of a loss that a human accepted."""
_WAL: Final = "-wal"
_SHARED: Final = "-shm"
_CONNECTED: Final = 128
"""The byte of SQLite's shared file that every open connection holds a lock on."""
_KEPT_NAMES: Final = 200
_INBOX: Final = "stream, key, kind, payload, decided, seq, code, message"
_MARK: Final = "channel, name, value"

Entries = list[tuple[str, int, bytes]]
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Rescued:
    """What became of a damaged database."""

    damage: str
    aside: Path
    streams: int
    entries: int
    lost: tuple[StreamId, ...]
    """Streams of which something is missing, as far as their names can be read; what is left of them is in the file that was set aside."""
    is_sealed: bool = True
    """Whether its heads are those that were sealed last, and the log of the house, which tells of earlier rescues, is among what goes on.

    Otherwise some streams are gone, and others may have been set back.
    """

    def __str__(self) -> str:
        text = f"the database was damaged ({self.damage}) and lies as `{self.aside.name}` now; "
        text += f"{self.streams} streams with {self.entries} entries go on"
        text += f", {len(self.lost)} could not be saved" if self.lost else ""
        if self.is_sealed:
            return text
        why = "the log of the house is lost" if HOUSE in self.lost else "its seal does not fit"
        return f"{text}; {why}, so what goes on may be older than what was there"


def damage_in(database: Path) -> str:
    """Return what is wrong with a database as a file; nothing where it is whole, or not there."""
    if not database.exists() or database.stat().st_size == 0:
        return ""
    try:
        db = sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)
        try:
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            db.close()
    except sqlite3.DatabaseError as error:
        code = int(getattr(error, "sqlite_errorcode", -1)) & 0xFF
        return str(error) if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) else ""
    return "" if found == "ok" else str(found)


def rescue(root: Path, clock: Clock, decode: Decode) -> Rescued | None:
    """Set a damaged database aside and go on with what is whole in it; None where nothing is damaged, `TryLater` while others use it."""
    home = StorePaths(root.absolute())
    damage = damage_in(home.database) or (CUT_OFF if name_aside(home.database) else "")
    if not damage:
        return None
    with _alone(home.database, f"is damaged ({damage})"):
        _put_back(home.database)
        return _rescued(home, clock.now(), decode)


def accept_loss(root: Path, clock: Clock) -> Loss | None:
    """Go on with the log as it is, and record what it lost; None where nothing is lost. Audit files that tell of more are kept aside."""
    home = StorePaths(root.absolute())
    gone = loss_of_database(home.root)
    if gone is not None:
        make_audit_key(home.audit_key)
    key = read_audit_key(home.audit_key)
    with _alone(home.database, "has lost entries", "`curtainwall audit accept-loss`"):
        pass  # nobody else is in it, who would hold entries that are gone
    create(home.database, lambda db: chain.write_seal(db, key))
    with CommitNote(home.last_commit, key) as note:
        db = connect(home.database)
        try:
            loss = gone or loss_in(db, home, note, with_audit_files=True)
            if loss is None:
                return None
            noted = note.read()
            now = clock.now()
            names: list[JsonValue] = [str(each) for each in loss.sessions[:_KEPT_NAMES]]
            data: dict[str, JsonValue] = {"gone": loss.is_gone, "entries": loss.entries, "sessions": names}
            ledger = Ledger(db, key)
            ledger.begin()
            ledger.count_at_least(noted.written if noted is not None else 0)
            (end,) = db.execute("SELECT seq FROM head WHERE stream = ?", (HOUSE,)).fetchone() or (0,)
            event = encode_event(ExtensionNoted(at=now, extension=LOSS, data=data))
            ledger.write(PreparedBatch([PreparedWrite(HOUSE, end, [event], [], now, audited=False)], [], []), now)
            ledger.commit(now)
            for session in loss.sessions:
                place = home.session(session)
                if place is not None:
                    (place / "audit.jsonl").rename(place / f"audit.jsonl.lost-{now}")
            note.write(ledger.written or 0)
        finally:
            db.close()
    return loss


@contextmanager
def _alone(database: Path, trouble: str, remedy: str = "`curtainwall audit rescue` or `curtainwall serve`") -> Generator[None]:
    """Keep others out of a database; raise `TryLater` where somebody is in it, who would go on writing to what was set aside."""
    descriptor = private_file(Path(f"{database}{_SHARED}"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    try:
        if not lock_byte(descriptor, _CONNECTED):
            raise TryLater(f"the database `{database}` {trouble}, and another process uses it: end that process, then run {remedy}")
        yield
    finally:
        os.close(descriptor)


def _rescued(home: StorePaths, now: Millis, decode: Decode) -> Rescued | None:
    key = read_audit_key(home.audit_key)
    aside = home.database.with_name(f"{home.database.name}{ASIDE}{now}")
    with tempfile.TemporaryDirectory(dir=home.root, prefix=".rescue-") as scratch:
        # Reading it would change it: what is looked at is a copy.
        copy, made = Path(scratch) / "copy.db", Path(scratch) / "made.db"
        for suffix in ("", _WAL):
            if Path(f"{home.database}{suffix}").exists():
                shutil.copy(f"{home.database}{suffix}", f"{copy}{suffix}")
        damage = damage_in(copy)
        if not damage:
            # Somebody else has just done it.
            return None
        whole, lost, inbox, marks = _salvaged(copy, key)
        # What an earlier rescue could not tell stands in the log of the house: where that is lost, nobody can tell it any more.
        is_sealed = HOUSE not in lost and _is_sealed(copy, key)
        report = Rescued(damage, aside, len(whole), sum(map(len, whole.values())), tuple(lost), is_sealed)
        create(made, lambda db: chain.write_seal(db, key))
        _write(made, key, whole, report, now, decode)
        _count_on(made, key, home.last_commit)
        _keep_rows(made, inbox, marks)
        _exchange(home.database, made, aside)
    return report


def _exchange(database: Path, made: Path, aside: Path) -> None:
    """Put a new database in the place of the damaged one, which keeps its content under another name; there is always one.

    INVARIANT: until the last step the damaged one has both names, so that whoever finds it without its WAL does not take it for whole.
    """
    aside.hardlink_to(database)
    if Path(f"{database}{_WAL}").exists():
        Path(f"{database}{_WAL}").rename(f"{aside}{_WAL}")
    made.replace(database)
    sync_directory(database.parent)


def _put_back(database: Path) -> None:
    """Undo an exchange that broke off, so that it begins anew with everything that there is."""
    aside = name_aside(database)
    if aside is not None:
        with suppress(FileNotFoundError):
            Path(f"{aside}{_WAL}").rename(f"{database}{_WAL}")
        aside.unlink()


def _salvaged(copy: Path, key: bytes) -> tuple[dict[StreamId, Entries], list[StreamId], Rows, Rows]:
    """Return the streams that are what we wrote, from the first entry to the sealed last one, the names of the others, inbox and marks."""
    whole: dict[StreamId, Entries] = {}
    lost: list[StreamId] = []
    db = sqlite3.connect(copy)
    try:
        columns = "id, CAST(stream AS TEXT), CAST(seq AS INTEGER), CAST(hash AS BLOB), CAST(mac AS BLOB)"
        for number, name, seq, digest, mac in _rows(db, f"SELECT {columns} FROM head NOT INDEXED ORDER BY id"):  # noqa: S608 - the text above
            stream = StreamId(name)
            is_ours = hmac.compare_digest(mac, chain.head_mac(key, stream.encode(), seq, digest))
            entries = _entries(db, number, stream, digest, seq) if is_ours else None
            if entries is None:
                lost.append(stream)
            else:
                whole[stream] = entries
        # A command for a stream that is lost would be decided by one that begins anew, as if nothing had been before.
        inbox = [row for row in _rows(db, f"SELECT {_INBOX} FROM inbox NOT INDEXED ORDER BY row") if row[0] in whole]  # noqa: S608 - names of ours
        marks = list(_rows(db, f"SELECT {_MARK} FROM mark NOT INDEXED"))  # noqa: S608 - names of ours
    finally:
        db.close()
    return whole, lost, inbox, marks


def _is_sealed(copy: Path, key: bytes) -> bool:
    """Tell whether the heads are all there as they were sealed: a stream that was set back has a head of ours as well."""
    db = sqlite3.connect(copy)
    try:
        found = list(_rows(db, "SELECT CAST(seq AS INTEGER), CAST(mac AS BLOB) FROM head NOT INDEXED"))
        older = list(_rows(db, "SELECT streams, entries, CAST(total AS BLOB), CAST(mac AS BLOB) FROM seal"))
        seals = [seal[:3] for seal in older if chain.fits_older_seal(seal, key)]
        with suppress(sqlite3.Error):
            seals += [seal[:3] for seal in (chain.read_seal(db, key),) if seal is not None]
    finally:
        db.close()
    heads = len(found), sum(seq for seq, _ in found), chain.as_total(sum(chain.as_number(mac) for _, mac in found))
    return heads in seals


def _count_on(database: Path, key: bytes, last_commit: Path) -> None:
    """Let the new database count on from what was ever written: what could not be saved is known to be lost."""
    noted = CommitNote(last_commit, key).read()
    db = connect(database)
    try:
        ledger = Ledger(db, key)
        ledger.begin()
        ledger.count_at_least(0 if noted is None else noted.written)
        db.execute("COMMIT")
    finally:
        db.close()


def _keep_rows(database: Path, inbox: Rows, marks: Rows) -> None:
    """Keep what waits for the streams that go on, the keys of what was decided, and what channels remember, so that nothing comes twice."""
    db = connect(database)
    try:
        db.execute("BEGIN IMMEDIATE")
        db.executemany(f"INSERT OR IGNORE INTO inbox ({_INBOX}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", inbox)  # noqa: S608 - names of ours
        db.executemany(f"INSERT OR IGNORE INTO mark ({_MARK}) VALUES (?, ?, ?)", marks)  # noqa: S608 - names of ours
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.close()


def _entries(db: sqlite3.Connection, number: int, stream: StreamId, digest: bytes, upto: int) -> Entries | None:
    found: Entries = []
    before, base = chain.START, number << STREAM_SHIFT
    columns = "CAST(kind AS TEXT), CAST(version AS INTEGER), CAST(payload AS BLOB)"
    query = f"SELECT {columns} FROM entry WHERE place > {base} AND place <= {base + upto} ORDER BY place"  # noqa: S608 - numbers
    for kind, version, payload in _rows(db, query):
        found.append((kind, version, payload))
        before = chain.link(before, stream.encode(), len(found), *found[-1])
    return found if len(found) == upto and hmac.compare_digest(before, digest) else None


def _rows(db: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Return rows for as long as they can be read."""
    try:
        yield from db.execute(query)
    except sqlite3.Error:
        return


def _write(database: Path, key: bytes, whole: dict[StreamId, Entries], report: Rescued, now: Millis, decode: Decode) -> None:
    """Write the streams as they were, the incident behind them, and the lists anew."""
    lost: list[JsonValue] = [str(each) for each in report.lost[:_KEPT_NAMES]]
    data: dict[str, JsonValue] = {
        "damage": report.damage,
        "aside": report.aside.name,
        "streams": report.streams,
        "entries": report.entries,
        "lost": lost,
        "sealed": report.is_sealed,
    }
    incident = encode_event(ExtensionNoted(at=now, extension=RESCUE, data=data))
    whole[HOUSE] = [*whole.get(HOUSE, []), incident]
    db = connect(database)
    try:
        ledger = Ledger(db, key)
        ledger.begin()
        writes = [PreparedWrite(stream, 0, entries, [], now, audited=False) for stream, entries in whole.items() if entries]
        ledger.write(PreparedBatch(writes, [], []), now)
        ledger.commit(now)
        begin(db)
        rebuild_lists(db, decode)
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.close()
