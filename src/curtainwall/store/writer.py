"""The one thread that writes: it takes every batch that waits, commits them together, and goes on only while the disk is well."""

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curtainwall.model import Broken, Clock, CurtainwallError, StreamId, TryLater
from curtainwall.store.faults import explain
from curtainwall.store.ledger import Ledger, PreparedBatch
from curtainwall.store.pruning import Pruning
from curtainwall.store.schema import begin, connect

_GROUP = 256
_FROM_VALUES = (ValueError, OverflowError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.IntegrityError, sqlite3.ProgrammingError)
"""What a single batch can be at fault for: values that the database cannot hold."""


@dataclass(slots=True, eq=False)
class _Job:
    """Work and who waits for it: a batch, or something that needs the database for itself."""

    work: PreparedBatch | Callable[[sqlite3.Connection], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Marks:
    """Streams whose audit files are complete up to an entry."""

    upto: Mapping[StreamId, int]


@dataclass(frozen=True, slots=True)
class _Hint:
    """Something that watchers should hear of although nothing was written."""

    name: StreamId


_LOOK, _STOP = object(), object()
_Result = tuple[_Job, object, CurtainwallError | None]


class Heard:
    """What the writer tells the rest of the store after a commit; each is called from the writer's thread."""

    def __init__(
        self,
        changed: Callable[[frozenset[StreamId]], None],
        audited: Callable[[list[StreamId]], None],
        loops: Callable[[], set[asyncio.AbstractEventLoop]],
        tell: Callable[[asyncio.AbstractEventLoop, frozenset[StreamId]], None],
    ) -> None:
        self.changed, self.audited, self.loops, self.tell = changed, audited, loops, tell


class Writer:
    """The writer of one store."""

    def __init__(self, path: Path, key: bytes, clock: Clock, busy_millis: int, heard: Heard) -> None:
        self._path = path
        self._wal = f"{path}-wal"
        self._key = key
        self._clock = clock
        self._busy_millis = busy_millis
        self._heard = heard
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        # Only the thread itself uses what follows.
        self._db: sqlite3.Connection | None = None
        self._ledger: Ledger | None = None
        self._inode = self._wal_inode = 0
        self._trouble: CurtainwallError | None = None
        self._version: int | None = None
        self._looked = False
        self._pruning = Pruning()

    def write(self, batch: PreparedBatch) -> Awaitable[Mapping[StreamId, int]]:
        """Return where the batch's streams end once it is durable; cancelling does not take it back."""
        return self._submit(batch)

    def run(self, work: Callable[[sqlite3.Connection], Any]) -> Awaitable[Any]:
        """Return what a function made of the database in a transaction of its own."""
        return self._submit(work)

    def mark_audited(self, upto: Mapping[StreamId, int]) -> None:
        """Note, with the next commit, how far audit files are complete."""
        self._queue.put(_Marks(upto))

    def look(self) -> None:
        """See whether another process wrote, and tell the watchers."""
        # No more than a hint: whoever cannot be told now is told at the next look.
        with self._lock, contextlib.suppress(TryLater):
            if not self._closed:
                self._put(_LOOK)

    def hint(self, name: StreamId) -> None:
        """Tell all watchers a name; nobody hears of it where the store is closed."""
        with self._lock, contextlib.suppress(TryLater):
            if not self._closed:
                self._put(_Hint(name))

    def drain(self) -> None:
        """Refuse new work from here on and wait until what was taken is done."""
        done = threading.Event()
        with self._lock:
            self._closed = True
            if self._thread is None:
                return
            self._put(done)
        done.wait()

    def close(self) -> None:
        """Finish what waits and end the thread."""
        self.drain()
        if self._thread is not None:
            self._queue.put(_STOP)
            self._thread.join()
            self._thread = None

    def _put(self, item: object) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="curtainwall-writer", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise TryLater(f"the machine has no room for one more thread: {error}") from error
            self._thread = thread
        self._queue.put(item)

    def _submit(self, work: PreparedBatch | Callable[[sqlite3.Connection], Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            if self._closed:
                raise TryLater("the store is closed: open it again")
            self._put(_Job(work, loop, future))
        return future

    def _run(self) -> None:
        stopping = False
        while not stopping:
            jobs: list[_Job] = []
            marks: dict[StreamId, int] = {}
            hints: set[StreamId] = set()
            looking = False
            drained: list[threading.Event] = []
            for item in self._take():
                if isinstance(item, _Job):
                    jobs.append(item)
                elif isinstance(item, _Marks):
                    marks.update(item.upto)
                elif isinstance(item, _Hint):
                    hints.add(item.name)
                elif isinstance(item, threading.Event):
                    drained.append(item)
                else:
                    looking = looking or item is _LOOK
                    stopping = stopping or item is _STOP
            if jobs or marks:
                self._work(jobs, marks)
            if hints:
                self._tell_all(frozenset(hints))
            if looking:
                self._look()
                self._prune()
            for event in drained:
                event.set()
        self._disconnect()

    def _take(self) -> list[object]:
        items = [self._queue.get()]
        try:
            while len(items) < _GROUP:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return items

    def _work(self, jobs: list[_Job], marks: dict[StreamId, int]) -> None:
        """Work off jobs in order: neighbouring batches together, everything else alone."""
        group: list[_Job] = []
        for job in jobs:
            if isinstance(job.work, PreparedBatch):
                group.append(job)
            else:
                self._settle(self._commit(group, {}), group)
                group = []
                self._settle(self._alone(job), [job])
        self._settle(self._commit(group, marks), group)

    def _commit(self, group: list[_Job], marks: dict[StreamId, int]) -> list[_Result]:
        if not group and not marks:
            return []
        try:
            ledger = self._healthy()
            return self._transact(ledger, group, marks)
        except _FROM_VALUES as error:
            self._abandon()
            if len(group) > 1:
                return [result for job in group for result in self._commit([job], {})]
            return [(job, None, Broken(f"this batch cannot be stored: {error}")) for job in group]
        except sqlite3.Error as error:
            return self._fail(group, explain(error, self._path))
        except CurtainwallError as error:
            return self._fail(group, error)
        except Exception as error:  # noqa: BLE001 - the thread must live on, whatever it was; nothing is committed
            return self._fail(group, Broken(f"writing failed unexpectedly: {error!r}"))

    def _transact(self, ledger: Ledger, group: list[_Job], marks: dict[StreamId, int]) -> list[_Result]:
        now = self._clock.now()
        results: list[_Result] = []
        ledger.begin()
        for job in group:
            assert isinstance(job.work, PreparedBatch)
            try:
                results.append((job, ledger.write(job.work, now), None))
            except CurtainwallError as error:
                # Raised before anything of this batch was written; the others go on.
                results.append((job, None, error))
        for stream, upto in marks.items():
            ledger.mark_audited(stream, upto)
        ledger.commit(now)
        # SQLite makes it with the first write.
        self._wal_inode = self._wal_inode or _inode_of(self._wal)
        return results

    def _alone(self, job: _Job) -> list[_Result]:
        assert not isinstance(job.work, PreparedBatch)
        try:
            self._healthy()
            db = self._db
            assert db is not None
            begin(db, self._busy_millis)
            result = job.work(db)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            return self._fail([job], explain(error, self._path))
        except CurtainwallError as error:
            self._abandon()
            return [(job, None, error)]
        except Exception as error:  # noqa: BLE001 - as above
            return self._fail([job], Broken(f"writing failed unexpectedly: {error!r}"))
        self._abandon()
        return [(job, result, None)]

    def _settle(self, results: list[_Result], group: list[_Job]) -> None:
        """Tell everyone who waits or watches: one call for each loop."""
        if not group:
            return
        done = [job.work for job, _, error in results if error is None]
        batches = [work for work in done if isinstance(work, PreparedBatch)]
        names = frozenset(name for batch in batches for name in batch.touched)
        by_loop: dict[asyncio.AbstractEventLoop, list[_Result]] = {}
        for result in results:
            by_loop.setdefault(result[0].loop, []).append(result)
        if names:
            for loop in self._heard.loops():
                by_loop.setdefault(loop, [])
        for loop, those in by_loop.items():
            # A loop that was closed has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._deliver, loop, those, names)
        if names:
            self._heard.changed(names)
        if audited := [write.stream for batch in batches for write in batch.writes if write.audited]:
            self._heard.audited(audited)

    def _deliver(self, loop: asyncio.AbstractEventLoop, results: list[_Result], names: frozenset[StreamId]) -> None:
        for job, result, error in results:
            if job.future.done():
                continue
            if error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)
        if names:
            self._heard.tell(loop, names)

    def _healthy(self) -> Ledger:
        """Return the ledger; after trouble only once a trial shows that it is over."""
        if self._db is not None and self._was_exchanged():
            self._disconnect()
            self._trouble = Broken(f"the database `{self._path}` was removed or exchanged")
        if self._ledger is None or self._db is None:
            self._db = connect(self._path, self._busy_millis)
            self._inode, self._wal_inode = _inode_of(self._path), 0
            self._heard.audited([StreamId(row[0]) for row in self._db.execute("SELECT stream FROM head WHERE audited < seq LIMIT 1000")])
            self._ledger = Ledger(self._db, self._key, self._busy_millis)
        if self._trouble is not None:
            self._try_out(self._db)
            self._trouble = None
        return self._ledger

    def _try_out(self, db: sqlite3.Connection) -> None:
        """Raise unless the database is whole and takes a write; what a failed write left in the WAL is overwritten by it."""
        if isinstance(self._trouble, Broken):
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise Broken(f"the database `{self._path}` is damaged: put back a copy that `audit verify` passes ({found})")
        begin(db, self._busy_millis)
        db.execute("UPDATE seal SET one = one")
        db.execute("COMMIT")

    def _fail(self, group: list[_Job], error: CurtainwallError) -> list[_Result]:
        self._trouble = error
        self._disconnect()
        return [(job, None, error) for job in group]

    def _abandon(self) -> None:
        if self._ledger is not None:
            try:
                self._ledger.abandon()
            except sqlite3.Error as error:
                self._trouble = explain(error, self._path)
                self._disconnect()

    def _disconnect(self) -> None:
        if self._db is not None:
            try:
                self._db.close()
            except sqlite3.Error as error:
                self._trouble = explain(error, self._path)
        self._db = self._ledger = None
        self._version = None

    def _was_exchanged(self) -> bool:
        """Tell whether somebody took away the files that we write to: what went there would be lost without a word."""
        return self._inode != _inode_of(self._path) or (self._wal_inode != 0 and self._wal_inode != _inode_of(self._wal))

    def _look(self) -> None:
        try:
            before, self._version = self._version, self._healthy().data_version()
        except (sqlite3.Error, CurtainwallError):
            return  # Whoever writes next is told.
        first, self._looked = not self._looked, True
        if before != self._version and not first:
            self._tell_loops(self._heard.loops(), frozenset())

    def _prune(self) -> None:
        """Forget a few old keys while nothing waits to be written."""
        if self._db is None or self._trouble is not None or not self._queue.empty():
            return
        try:
            self._pruning.go_on(self._db, self._clock.now())
        except sqlite3.Error as error:
            self._fail([], explain(error, self._path))

    def _tell_all(self, names: frozenset[StreamId]) -> None:
        self._tell_loops(self._heard.loops(), names)
        self._heard.changed(names)

    def _tell_loops(self, loops: Iterable[asyncio.AbstractEventLoop], names: frozenset[StreamId]) -> None:
        for loop in loops:
            # A loop that was closed has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._heard.tell, loop, names)


def _inode_of(path: Path | str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1
