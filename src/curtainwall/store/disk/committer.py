"""The database as the one who writes has it: batches go into one transaction, and none is begun while the disk is not well."""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from curtainwall.model import Broken, CurtainwallError, Millis, StreamId
from curtainwall.store.database import begin, connect
from curtainwall.store.disk.ledger import Ledger, PreparedBatch
from curtainwall.store.faults import explain, unsure
from curtainwall.store.home import StorePaths
from curtainwall.store.loss import CommitNote, require_whole

AT_OPENING: Final = 2000
"""How many rows are looked at when a store is opened."""

_KEPT: Final[Millis] = 7 * 24 * 3600 * 1000
_REST: Final[Millis] = 3600 * 1000
_FEW: Final = 256


def prune(db: sqlite3.Connection, now: Millis, after: int, many: int) -> int:
    """Forget what was decided long ago among the rows that come next, in one statement; return the last of them, 0 at the end."""
    rows = "SELECT row, decided FROM inbox WHERE row > ? ORDER BY row LIMIT ?"
    last, oldest = db.execute(f"SELECT max(row), min(decided) FROM ({rows})", (after, many)).fetchone()  # noqa: S608 - the text above
    if oldest is not None and oldest < now - _KEPT:
        db.execute("DELETE FROM inbox WHERE row > ? AND row <= ? AND decided < ?", (after, last, now - _KEPT))
    return int(last or 0)


class InboxPruner:
    """One walk after the other through the whole inbox, with a long rest between them."""

    def __init__(self) -> None:
        self._after = 0
        self._next: Millis = 0

    def go_on(self, db: sqlite3.Connection, now: Millis) -> None:
        """Look at a few more rows; where somebody else writes, another time."""
        # A clock that was set back is waited for by nobody.
        if 0 < self._next - now <= _REST:
            return
        try:
            self._after = prune(db, now, self._after, _FEW)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        else:
            if not self._after:
                self._next = now + _REST


Written = Mapping[StreamId, int] | CurtainwallError
"""What became of a batch: where its streams end, or why nothing of it was written, or why that is not known."""

_FROM_VALUES = (ValueError, OverflowError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.IntegrityError, sqlite3.ProgrammingError)
"""What a single batch can be at fault for: values that the database cannot hold."""


_BEHIND = 1000
"""How many audit files that are behind are told at a time, so that nobody who comes for a moment has to catch up with all of them."""


class Committer:
    """One connection that writes, and what it knows about the health of its database. Everything here happens in one thread."""

    def __init__(self, home: StorePaths, key: bytes, busy_millis: int, behind: Callable[[list[StreamId]], None]) -> None:
        self._home = home
        self._path = path = home.database
        self._note = CommitNote(home.last_commit, key)
        self._wal = f"{path}-wal"
        self._key = key
        self._busy_millis = busy_millis
        # Hears, after each connect, of streams whose audit files are behind the log.
        self._behind = behind
        self._db: sqlite3.Connection | None = None
        self._ledger: Ledger | None = None
        self._inode = self._wal_inode = 0
        self._trouble: CurtainwallError | None = None
        self._version: int | None = None
        # The last one that was told, while there may be more.
        self._reported_upto: int | None = None
        self._had_it = False
        self._pruning = InboxPruner()

    def commit(self, batches: Sequence[PreparedBatch], marks: Mapping[StreamId, int], now: Millis) -> list[Written]:
        """Write batches in one transaction, and how far audit files are complete; a batch that is refused keeps no other from it."""
        if not batches and not marks:
            return []
        try:
            return self._transact(self._healthy(), batches, marks, now)
        except _FROM_VALUES as error:
            self._abandon()
            if len(batches) > 1:
                return [result for batch in batches for result in self.commit([batch], {}, now)]
            return [Broken(f"this batch cannot be stored: {error}") for _ in batches]
        except sqlite3.Error as error:
            fault: CurtainwallError = explain(error, self._path)
        except CurtainwallError as error:
            fault = error
        except Exception as error:  # noqa: BLE001 - whoever writes must live on, whatever it was; nothing is committed
            fault = Broken(f"writing failed unexpectedly: {error!r}")
        self._fail(fault)
        return self._results_after(batches, fault)

    def run(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Return what a function made of the database in a transaction of its own."""
        try:
            self._healthy()
            db = self._db
            assert db is not None
            begin(db, self._busy_millis)
            result = work(db)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            fault = explain(error, self._path)
            self._fail(fault)
            raise fault from error
        except CurtainwallError:
            self._abandon()
            raise
        except Exception as error:
            fault = Broken(f"writing failed unexpectedly: {error!r}")
            self._fail(fault)
            raise fault from error
        self._abandon()
        return result

    def was_changed(self) -> bool:
        """Tell whether another connection wrote since the last look, or before the first one since this has the database."""
        try:
            ledger = self._healthy()
            before, self._version = self._version, ledger.data_version()
        except (sqlite3.Error, CurtainwallError):
            return False  # Whoever writes next is told.
        return before != self._version

    def prune(self, now: Millis) -> None:
        """Forget a few old keys."""
        if self._db is None or self._trouble is not None:
            return
        try:
            self._pruning.go_on(self._db, now)
        except sqlite3.Error as error:
            self._fail(explain(error, self._path))

    def report_behind(self) -> None:
        """Say again which audit files are behind; where there is no connection, the next one does."""
        self._reported_upto = 0
        self.report_more_behind()

    def report_more_behind(self) -> None:
        """Say which other audit files are behind, where so many are that they were not all told."""
        if self._db is not None and self._reported_upto is not None:
            with suppress(sqlite3.Error):
                self._report_behind_after(self._db, self._reported_upto)

    def close(self) -> None:
        """Let go of the database."""
        if self._db is not None:
            try:
                self._db.close()
            except sqlite3.Error as error:
                self._trouble = explain(error, self._path)
        self._db = self._ledger = None
        self._version = None
        self._note.close()

    def _transact(self, ledger: Ledger, batches: Sequence[PreparedBatch], marks: Mapping[StreamId, int], now: Millis) -> list[Written]:
        results: list[Written] = []
        ledger.begin()
        for batch in batches:
            try:
                results.append(ledger.write(batch, now))
            except CurtainwallError as error:
                # Raised before anything of this batch was written; the others go on.
                results.append(error)
        for stream, upto in marks.items():
            ledger.mark_audited(stream, upto)
        ledger.commit(now)
        if ledger.written is not None:
            self._note.write(ledger.written)
        # SQLite makes it with the first write.
        self._wal_inode = self._wal_inode or _inode_of(self._wal)
        return results

    def _results_after(self, batches: Sequence[PreparedBatch], fault: CurtainwallError) -> list[Written]:
        """Return what a fault that kept everything from being written means for each: what another was given may stand all the same."""
        standing: set[PreparedBatch] = set()
        if doubtful := [batch for batch in batches if batch.is_doubtful]:
            with suppress(sqlite3.Error, CurtainwallError), closing(connect(self._path, self._busy_millis)) as db:
                ledger = Ledger(db, self._key, self._busy_millis)
                standing.update(batch for batch in doubtful if ledger.stands(batch))
        # One that is not seen may still be in the WAL, and come to light when that is read anew.
        unknown = unsure(fault)
        return [batch.ends if batch in standing else unknown if batch.is_doubtful else fault for batch in batches]

    def _healthy(self) -> Ledger:
        """Return the ledger; after trouble only once a trial shows that it is over."""
        if self._db is not None and self._was_exchanged():
            self.close()
            self._trouble = Broken(f"the database `{self._path}` was removed or exchanged")
        if self._ledger is None or self._db is None:
            self._db = connect(self._path, self._busy_millis)
            self._inode, self._wal_inode = _inode_of(self._path), 0
            require_whole(self._db, self._home, self._note)
            self._report_behind_after(self._db, 0)
            self._ledger = Ledger(self._db, self._key, self._busy_millis)
            if not self._had_it:
                # Later, nobody saw what others wrote in between.
                self._version, self._had_it = self._ledger.data_version(), True
        if self._trouble is not None:
            self._try_out(self._db)
            self._trouble = None
        return self._ledger

    def _report_behind_after(self, db: sqlite3.Connection, after: int) -> None:
        find = "SELECT id, stream FROM head WHERE id > ? AND audited < seq ORDER BY id LIMIT ?"
        found = db.execute(find, (after, _BEHIND)).fetchall()
        self._reported_upto = found[-1][0] if len(found) == _BEHIND else None
        self._behind([StreamId(stream) for _, stream in found])

    def _try_out(self, db: sqlite3.Connection) -> None:
        """Raise unless the database is whole and takes a write; what a failed write left in the WAL is overwritten by it."""
        if isinstance(self._trouble, Broken):
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise Broken(f"the database `{self._path}` is damaged: put back a copy that `audit verify` passes ({found})")
        begin(db, self._busy_millis)
        db.execute("UPDATE seal SET one = one")
        db.execute("COMMIT")

    def _fail(self, fault: CurtainwallError) -> None:
        self._trouble = fault
        self.close()

    def _abandon(self) -> None:
        if self._ledger is not None:
            try:
                self._ledger.abandon()
            except sqlite3.Error as error:
                self._fail(explain(error, self._path))

    def _was_exchanged(self) -> bool:
        """Tell whether somebody took away the files that we write to: what went there would be lost without a word."""
        return self._inode != _inode_of(self._path) or (self._wal_inode != 0 and self._wal_inode != _inode_of(self._wal))


def _inode_of(path: Path | str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1
