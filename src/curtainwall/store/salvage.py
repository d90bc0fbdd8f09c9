"""Rescues a damaged database: sets it aside and copies every whole, verified stream to a new one. Also records losses a human accepts."""

import hmac
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue

from curtainwall.model import CHAIN_START, HOUSE, Clock, ExtensionNoted, Millis, StreamId, TryLater, encode_event, entry_hash, record
from curtainwall.store.audit import chain
from curtainwall.store.audit.trail import Decode
from curtainwall.store.database import STREAM_SHIFT, begin, connect, create
from curtainwall.store.disk.leases import lock_byte
from curtainwall.store.disk.ledger import Ledger, PreparedBatch, PreparedWrite
from curtainwall.store.home import ASIDE, CUT_OFF, StorePaths, make_audit_key, name_aside, private_file, read_audit_key, sync_directory
from curtainwall.store.lists import rebuild_lists
from curtainwall.store.loss import RESCUE, CommitNote, Loss, loss_in, loss_of_database

LOSS: Final = "loss-accepted"
"""The extension name under which the house log records a loss that a human accepted."""
_WAL: Final = "-wal"
_SHARED: Final = "-shm"
_CONNECTED: Final = 128
"""The byte of SQLite's shared-memory file that every open connection locks."""
_KEPT_NAMES: Final = 200
_INBOX: Final = "stream, key, kind, payload, decided, seq, code, message"
_MARK: Final = "channel, name, value"

Entries = list[tuple[str, int, bytes]]
Rows = list[tuple[Any, ...]]


@record
class Rescued:
    """The result of rescuing a damaged database."""

    damage: str
    aside: Path
    streams: int
    entries: int
    lost: tuple[StreamId, ...]
    """Streams with missing entries, as far as their names can be read. Their remains are in the file that was set aside."""
    is_sealed: bool = True
    """Whether the heads match the last seal and the house log, which records earlier rescues, survived.

    If not, some streams are gone, and others may be older than they were.
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
    """Return what is wrong with a database file, or an empty string if it is whole or missing."""
    if not database.exists() or database.stat().st_size == 0:
        return ""
    try:
        db = sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)
        try:
            (finding,) = db.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            db.close()
    except sqlite3.DatabaseError as error:
        code = int(getattr(error, "sqlite_errorcode", -1)) & 0xFF
        return str(error) if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) else ""
    return "" if finding == "ok" else str(finding)


def rescue(root: Path, clock: Clock, decode: Decode) -> Rescued | None:
    """Set a damaged database aside and keep what is whole. Return None if nothing is damaged; raise `TryLater` while others use it."""
    home = StorePaths(root.absolute())
    damage = damage_in(home.database) or (CUT_OFF if name_aside(home.database) else "")
    if not damage:
        return None
    with _exclusive(home.database, f"is damaged ({damage})"):
        _put_back(home.database)
        return _rescue_locked(home, clock.now(), decode)


def accept_loss(root: Path, clock: Clock) -> Loss | None:
    """Accept the log as it is and record what it lost, or return None if nothing is lost. Audit files that are ahead are set aside."""
    home = StorePaths(root.absolute())
    missing = loss_of_database(home.root)
    if missing is not None:
        make_audit_key(home.audit_key)
    key = read_audit_key(home.audit_key)
    with _exclusive(home.database, "has lost entries", "`curtainwall audit accept-loss`"):
        pass  # No other process has the database open, so none holds entries that are gone.
    create(home.database, lambda db: chain.write_seal(db, key))
    with CommitNote(home.last_commit, key) as note:
        db = connect(home.database)
        try:
            loss = missing or loss_in(db, home, note, with_audit_files=True)
            if loss is None:
                return None
            last_commit = note.read()
            now = clock.now()
            names: list[JsonValue] = [str(each) for each in loss.sessions[:_KEPT_NAMES]]
            data: dict[str, JsonValue] = {"gone": loss.is_gone, "entries": loss.entries, "sessions": names}
            ledger = Ledger(db, key)
            ledger.begin()
            ledger.count_at_least(last_commit.written if last_commit is not None else 0)
            (end,) = db.execute("SELECT seq FROM head WHERE stream = ?", (HOUSE,)).fetchone() or (0,)
            event = encode_event(ExtensionNoted(at=now, extension=LOSS, data=data))
            ledger.write(PreparedBatch([PreparedWrite(HOUSE, end, [event], [], now, audited=False)], [], []), now)
            ledger.commit(now)
            for session in loss.sessions:
                directory = home.session(session)
                if directory is not None:
                    (directory / "audit.jsonl").rename(directory / f"audit.jsonl.lost-{now}")
            note.write(ledger.written or 0)
        finally:
            db.close()
    return loss


@contextmanager
def _exclusive(database: Path, trouble: str, remedy: str = "`curtainwall audit rescue` or `curtainwall serve`") -> Generator[None]:
    """Lock others out of a database. Raise `TryLater` if a process has it open: it would keep writing to the file we set aside."""
    descriptor = private_file(Path(f"{database}{_SHARED}"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    try:
        if not lock_byte(descriptor, _CONNECTED):
            raise TryLater(f"the database `{database}` {trouble}, and another process uses it: end that process, then run {remedy}")
        yield
    finally:
        os.close(descriptor)


def _rescue_locked(home: StorePaths, now: Millis, decode: Decode) -> Rescued | None:
    key = read_audit_key(home.audit_key)
    aside = home.database.with_name(f"{home.database.name}{ASIDE}{now}")
    with tempfile.TemporaryDirectory(dir=home.root, prefix=".rescue-") as scratch:
        # Opening the database would change it, so we read a copy.
        copy, made = Path(scratch) / "copy.db", Path(scratch) / "made.db"
        for suffix in ("", _WAL):
            if Path(f"{home.database}{suffix}").exists():
                shutil.copy(f"{home.database}{suffix}", f"{copy}{suffix}")
        damage = damage_in(copy)
        if not damage:
            # Another process has just rescued it.
            return None
        whole, lost, inbox, marks = _salvage(copy, key)
        # Only the house log records what earlier rescues could not verify. If it is lost, so is that knowledge.
        is_sealed = HOUSE not in lost and _is_sealed(copy, key)
        report = Rescued(damage, aside, len(whole), sum(map(len, whole.values())), tuple(lost), is_sealed)
        create(made, lambda db: chain.write_seal(db, key))
        _write(made, key, whole, report, now, decode)
        _continue_count(made, key, home.last_commit)
        _keep_rows(made, inbox, marks)
        _exchange(home.database, made, aside)
    return report


def _exchange(database: Path, made: Path, aside: Path) -> None:
    """Replace the damaged database with the new one and keep the old content under another name. A database is always in place.

    INVARIANT: until the last step the damaged file has both names, so nobody who finds it without its WAL takes it for whole.
    """
    aside.hardlink_to(database)
    if Path(f"{database}{_WAL}").exists():
        Path(f"{database}{_WAL}").rename(f"{aside}{_WAL}")
    made.replace(database)
    sync_directory(database.parent)


def _put_back(database: Path) -> None:
    """Undo an interrupted exchange, so that the rescue starts over with everything there is."""
    aside = name_aside(database)
    if aside is not None:
        with suppress(FileNotFoundError):
            Path(f"{aside}{_WAL}").rename(f"{database}{_WAL}")
        aside.unlink()


def _salvage(copy: Path, key: bytes) -> tuple[dict[StreamId, Entries], list[StreamId], Rows, Rows]:
    """Return the streams proven whole up to their sealed last entry, the names of the others, and the rows of inbox and marks."""
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
        # Drop commands for lost streams: a new stream would decide them as if nothing had happened before.
        inbox = [row for row in _rows(db, f"SELECT {_INBOX} FROM inbox NOT INDEXED ORDER BY row") if row[0] in whole]  # noqa: S608 - names of ours
        marks = list(_rows(db, f"SELECT {_MARK} FROM mark NOT INDEXED"))  # noqa: S608 - names of ours
    finally:
        db.close()
    return whole, lost, inbox, marks


def _is_sealed(copy: Path, key: bytes) -> bool:
    """Tell whether the heads match the seal. A stream that was set back also has a valid head, so checking heads alone is not enough."""
    db = sqlite3.connect(copy)
    try:
        head_rows = list(_rows(db, "SELECT CAST(seq AS INTEGER), CAST(mac AS BLOB) FROM head NOT INDEXED"))
        seal_rows = list(_rows(db, "SELECT streams, entries, CAST(total AS BLOB), CAST(mac AS BLOB) FROM seal"))
        seals = [seal[:3] for seal in seal_rows if chain.fits_older_seal(seal, key)]
        with suppress(sqlite3.Error):
            seals += [seal[:3] for seal in (chain.read_seal(db, key),) if seal is not None]
    finally:
        db.close()
    heads = len(head_rows), sum(seq for seq, _ in head_rows), chain.as_total(sum(chain.as_number(mac) for _, mac in head_rows))
    return heads in seals


def _continue_count(database: Path, key: bytes, last_commit: Path) -> None:
    """Continue the count of entries ever written in the new database, so that what could not be saved is known to be lost."""
    last_commit_note = CommitNote(last_commit, key).read()
    db = connect(database)
    try:
        ledger = Ledger(db, key)
        ledger.begin()
        ledger.count_at_least(0 if last_commit_note is None else last_commit_note.written)
        db.execute("COMMIT")
    finally:
        db.close()


def _keep_rows(database: Path, inbox: Rows, marks: Rows) -> None:
    """Copy the inbox, including the keys of decided commands, and the channels' marks, so that nothing is processed twice."""
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
    entries: Entries = []
    before, base = CHAIN_START, number << STREAM_SHIFT
    columns = "CAST(kind AS TEXT), CAST(version AS INTEGER), CAST(payload AS BLOB)"
    query = f"SELECT {columns} FROM entry WHERE place > {base} AND place <= {base + upto} ORDER BY place"  # noqa: S608 - numbers
    for kind, version, payload in _rows(db, query):
        entries.append((kind, version, payload))
        before = entry_hash(before, stream.encode(), len(entries), *entries[-1])
    return entries if len(entries) == upto and hmac.compare_digest(before, digest) else None


def _rows(db: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield rows until one cannot be read."""
    try:
        yield from db.execute(query)
    except sqlite3.Error:
        return


def _write(database: Path, key: bytes, whole: dict[StreamId, Entries], report: Rescued, now: Millis, decode: Decode) -> None:
    """Write the streams as they were, record the incident in the house log, and rebuild the lists."""
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
