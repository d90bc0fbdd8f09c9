"""The writing side of the database: commits batches in one transaction, and starts none while the disk is failing."""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from curtainwall.model import Broken, CurtainwallError, Millis, StreamId
from curtainwall.store.database import begin, connect
from curtainwall.store.disk.ledger import Ledger, PreparedBatch
from curtainwall.store.disk.pruner import InboxPruner
from curtainwall.store.faults import explain, unsure
from curtainwall.store.home import StorePaths
from curtainwall.store.loss import CommitNote, require_whole

Written = Mapping[StreamId, int] | CurtainwallError
"""The result of a batch: where its streams end, or why nothing of it was written, or why that is not known."""

_FROM_VALUES = (ValueError, OverflowError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.IntegrityError, sqlite3.ProgrammingError)
"""Errors caused by a single batch: values that the database cannot hold."""


_BEHIND = 1000
"""How many outdated audit files are reported at a time, so that a short-lived process need not catch up on all of them."""


class Committer:
    """A writing connection that tracks the health of its database. It is used by one thread only."""

    def __init__(self, home: StorePaths, key: bytes, busy_millis: int, report_behind: Callable[[list[StreamId]], None]) -> None:
        self._home = home
        self._path = path = home.database
        self._note = CommitNote(home.last_commit, key)
        self._wal = f"{path}-wal"
        self._key = key
        self._busy_millis = busy_millis
        # Called after each connect with the streams whose audit files are behind the log.
        self._on_behind = report_behind
        self._db: sqlite3.Connection | None = None
        self._ledger: Ledger | None = None
        self._inode = self._wal_inode = 0
        self._last_fault: CurtainwallError | None = None
        self._version: int | None = None
        # The last head that was reported, while there may be more.
        self._reported_upto: int | None = None
        self._was_connected = False
        self._pruner = InboxPruner()

    def commit(self, batches: Sequence[PreparedBatch], marks: Mapping[StreamId, int], now: Millis) -> list[Written]:
        """Write batches and audit marks in one transaction. A refused batch does not stop the others."""
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
        except Exception as error:  # noqa: BLE001 - the writer must survive any failure; nothing is committed
            fault = Broken(f"writing failed unexpectedly: {error!r}")
        self._fail(fault)
        return self._results_after(batches, fault)

    def run(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Run a function on the database in a separate transaction and return its result."""
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
        """Tell whether another connection wrote since the last look, or may have while this one was not connected."""
        try:
            ledger = self._healthy()
            before, self._version = self._version, ledger.data_version()
        except (sqlite3.Error, CurtainwallError):
            return False  # The next write reports the fault.
        return before != self._version

    def prune(self, now: Millis) -> None:
        """Delete a few old keys from the inbox."""
        if self._db is None or self._last_fault is not None:
            return
        try:
            self._pruner.go_on(self._db, now)
        except sqlite3.Error as error:
            self._fail(explain(error, self._path))

    def report_behind(self) -> None:
        """Report again which audit files are behind. Without a connection, the next connect does so."""
        self._reported_upto = 0
        self.report_more_behind()

    def report_more_behind(self) -> None:
        """Report the next audit files that are behind, if there were too many to report at once."""
        if self._db is not None and self._reported_upto is not None:
            with suppress(sqlite3.Error):
                self._report_behind_after(self._db, self._reported_upto)

    def close(self) -> None:
        """Close the database."""
        if self._db is not None:
            try:
                self._db.close()
            except sqlite3.Error as error:
                self._last_fault = explain(error, self._path)
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
                # Raised before anything of this batch was written, so the others continue.
                results.append(error)
        for stream, upto in marks.items():
            ledger.mark_audited(stream, upto)
        ledger.commit(now)
        if ledger.written is not None:
            self._note.write(ledger.written)
        # SQLite creates the WAL with the first write.
        self._wal_inode = self._wal_inode or _inode_of(self._wal)
        return results

    def _results_after(self, batches: Sequence[PreparedBatch], fault: CurtainwallError) -> list[Written]:
        """Return each batch's result after a fault kept the transaction from committing. Doubtful ones may have been written elsewhere."""
        written: set[PreparedBatch] = set()
        if doubtful := [batch for batch in batches if batch.is_doubtful]:
            with suppress(sqlite3.Error, CurtainwallError), closing(connect(self._path, self._busy_millis)) as db:
                ledger = Ledger(db, self._key, self._busy_millis)
                written.update(batch for batch in doubtful if ledger.is_written(batch))
        # A batch that is not visible may still be in the WAL, and appear when that is read again.
        unknown = unsure(fault)
        return [batch.ends if batch in written else unknown if batch.is_doubtful else fault for batch in batches]

    def _healthy(self) -> Ledger:
        """Return the ledger. After a fault, first require that a trial write succeeds."""
        if self._db is not None and self._was_replaced():
            self.close()
            self._last_fault = Broken(f"the database `{self._path}` was removed or exchanged")
        if self._ledger is None or self._db is None:
            self._db = connect(self._path, self._busy_millis)
            self._inode, self._wal_inode = _inode_of(self._path), 0
            require_whole(self._db, self._home, self._note)
            self._report_behind_after(self._db, 0)
            self._ledger = Ledger(self._db, self._key, self._busy_millis)
            if not self._was_connected:
                # Only for the first connection: after a reconnect, what others wrote in between has not been seen.
                self._version, self._was_connected = self._ledger.data_version(), True
        if self._last_fault is not None:
            self._try_out(self._db)
            self._last_fault = None
        return self._ledger

    def _report_behind_after(self, db: sqlite3.Connection, after: int) -> None:
        query = "SELECT id, stream FROM head WHERE id > ? AND audited < seq ORDER BY id LIMIT ?"
        rows = db.execute(query, (after, _BEHIND)).fetchall()
        self._reported_upto = rows[-1][0] if len(rows) == _BEHIND else None
        self._on_behind([StreamId(stream) for _, stream in rows])

    def _try_out(self, db: sqlite3.Connection) -> None:
        """Raise unless the database is whole and accepts a write. The write also overwrites what a failed one left in the WAL."""
        if isinstance(self._last_fault, Broken):
            (finding,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if finding != "ok":
                raise Broken(f"the database `{self._path}` is damaged: put back a copy that `audit verify` passes ({finding})")
        begin(db, self._busy_millis)
        db.execute("UPDATE seal SET one = one")
        db.execute("COMMIT")

    def _fail(self, fault: CurtainwallError) -> None:
        self._last_fault = fault
        self.close()

    def _abandon(self) -> None:
        if self._ledger is not None:
            try:
                self._ledger.abandon()
            except sqlite3.Error as error:
                self._fail(explain(error, self._path))

    def _was_replaced(self) -> bool:
        """Tell whether the files that we write to were replaced. What we wrote there would be lost silently."""
        return self._inode != _inode_of(self._path) or (self._wal_inode != 0 and self._wal_inode != _inode_of(self._wal))


def _inode_of(path: Path | str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1
