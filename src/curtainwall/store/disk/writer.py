"""The one who writes: every batch that waits is committed together with the others, in a thread or in a process of its own."""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from curtainwall.model import Clock, CurtainwallError, StreamId, TryLater
from curtainwall.store.disk.committer import Committer
from curtainwall.store.disk.ledger import PreparedBatch
from curtainwall.store.disk.protocol import WriterTerms
from curtainwall.store.faults import unsure

if TYPE_CHECKING:
    # Start-up time: only a busy process writes apart.
    from curtainwall.store.disk.writer_process import Pending, WaitForEnd, WriterSwitch

CROWDED: Final = 100
"""How many batches a second have to come while others are under way, so that a process of its own is worth it."""

QUIET: Final = 600.0
"""For how many seconds such a process stays while nothing is crowded."""

_GROUP = 256


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


@dataclass(frozen=True, slots=True)
class _Barrier:
    """Who wants to know that everything before it is done."""

    tell: Callable[[], object]


@dataclass(frozen=True, slots=True)
class _Leftover:
    """What somebody left who was given it to write and is dying: it is taken up once they are dead."""

    jobs: Sequence[_Job]
    death: "WaitForEnd"


_LOOK, _STOP = object(), object()
_Result = tuple[_Job, object, CurtainwallError | None]


@dataclass(frozen=True, slots=True)
class CommitListener:
    """What the writer tells the rest of the store after a commit; each but `tell` may be called from any thread."""

    changed: Callable[[frozenset[StreamId]], None]
    audited: Callable[[Sequence[StreamId]], None]
    loops: Callable[[], set[asyncio.AbstractEventLoop]]
    tell: Callable[[asyncio.AbstractEventLoop, frozenset[StreamId]], None]


class Writer:
    """The writer of one store: a thread, and where a loop asks for it a process for everything that comes from that loop."""

    def __init__(self, terms: WriterTerms, clock: Clock, listener: CommitListener) -> None:
        self._terms = terms
        self._clock = clock
        self._heard = listener
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._apart: WriterSwitch | None = None
        # Only the thread itself uses it.
        self._pen = Committer(terms.home, terms.key, terms.busy_millis, listener.audited)

    def write(self, batch: PreparedBatch) -> Awaitable[Mapping[StreamId, int]]:
        """Return where the batch's streams end once it is durable; cancelling does not take it back."""
        apart = self._apart
        if apart is None or self._closed or apart.loop is not asyncio.get_running_loop():
            return self.submit(batch)
        return apart.write(batch)

    def run(self, work: Callable[[sqlite3.Connection], Any]) -> Awaitable[Any]:
        """Return what a function made of the database in a transaction of its own."""
        return self._submit(work)

    def allow_writer_process(self, crowded: int, quiet: float) -> None:
        """Let a process of its own write what comes from the running loop, while that is so much at once; one loop at a time has that."""
        # Start-up time: only a busy process writes apart.
        from curtainwall.store.disk.writer_process import WriterSwitch

        apart = self._apart
        if apart is not None:
            if not apart.loop.is_closed():
                return
            apart.close()
        self._apart = WriterSwitch(self._terms, self._clock, self, crowded, quiet)

    def mark_audited(self, upto: Mapping[StreamId, int]) -> None:
        """Note, with the next commit, how far audit files are complete."""
        self._queue.put(_Marks(upto))

    def look(self) -> None:
        """See whether another process wrote, and tell the watchers."""
        apart = self._apart
        # What it sees is heard on its loop alone.
        if apart is not None and apart.is_by_process and not apart.loop.is_closed():
            apart.look()
            return
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
        with self._lock:
            self._closed = True
        self._wait_for_thread()
        if self._apart is not None:
            self._apart.finish()
            # What the process was unsure about, the thread has now.
            self._wait_for_thread()

    def close(self) -> None:
        """Finish what waits, and end process and thread."""
        self.drain()
        if self._apart is not None:
            self._apart.close()
        if self._thread is not None:
            self._queue.put(_STOP)
            self._thread.join()
            self._thread = None

    def submit(self, batch: PreparedBatch) -> asyncio.Future[Mapping[StreamId, int]]:
        """Take a batch."""
        return self._submit(batch)

    def take_back(self, waiting: "Sequence[Pending]", loop: asyncio.AbstractEventLoop, death: "WaitForEnd") -> None:
        """Take batches that a process was given that is dying, with those who wait for them; some may stand already."""
        for batch, _ in waiting:
            batch.is_doubtful = True
        try:
            with self._lock:
                self._put(_Leftover([_Job(batch, loop, future) for batch, future in waiting], death))
        except TryLater as error:
            death()
            for _, future in waiting:
                if not future.done():
                    future.set_exception(unsure(error))
        # Its audit files may have stayed behind.
        self.reached(self._pen.report_behind)

    def reached(self, tell: Callable[[], object]) -> None:
        """Say when everything that was taken so far is done."""
        with self._lock:
            if self._thread is not None:
                self._put(_Barrier(tell))
                return
        tell()

    def wrote(self, done: Sequence[PreparedBatch], loop: asyncio.AbstractEventLoop) -> None:
        """Tell whoever watches what was written; called on that loop. Its audit files are kept by whoever wrote it."""
        names = _touched(done)
        for each in self._heard.loops():
            if each is loop:
                self._heard.tell(each, names)
            else:
                self._tell_loops([each], names)
        self._heard.changed(names)

    def changed(self) -> None:
        """Tell whoever watches that another process wrote."""
        self._tell_loops(self._heard.loops(), frozenset())

    def _wait_for_thread(self) -> None:
        done = threading.Event()
        self.reached(done.set)
        done.wait()

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
            reached: list[_Barrier] = []
            for item in self._take():
                if isinstance(item, _Job):
                    jobs.append(item)
                elif isinstance(item, _Leftover):
                    item.death()
                    jobs.extend(item.jobs)
                elif isinstance(item, _Marks):
                    marks.update(item.upto)
                elif isinstance(item, _Hint):
                    hints.add(item.name)
                elif isinstance(item, _Barrier):
                    reached.append(item)
                else:
                    looking = looking or item is _LOOK
                    stopping = stopping or item is _STOP
            if jobs or marks:
                self._work(jobs, marks)
            if hints:
                self._tell_all(frozenset(hints))
            if looking:
                self._look()
            for one in reached:
                # A loop that was closed has nobody left who waits.
                with contextlib.suppress(RuntimeError):
                    one.tell()
        self._pen.close()

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
        group: list[tuple[_Job, PreparedBatch]] = []
        for job in jobs:
            if isinstance(job.work, PreparedBatch):
                group.append((job, job.work))
            else:
                self._commit(group, {})
                group = []
                try:
                    self._settle([(job, self._pen.run(job.work), None)])
                except CurtainwallError as error:
                    self._settle([(job, None, error)])
        self._commit(group, marks)

    def _commit(self, group: Sequence[tuple[_Job, PreparedBatch]], marks: Mapping[StreamId, int]) -> None:
        written = self._pen.commit([batch for _, batch in group], marks, self._clock.now())
        results: list[_Result] = []
        done: list[PreparedBatch] = []
        for (job, batch), result in zip(group, written, strict=True):
            if isinstance(result, CurtainwallError):
                results.append((job, None, result))
            else:
                results.append((job, result, None))
                done.append(batch)
        self._settle(results, done)

    def _settle(self, results: Sequence[_Result], done: Sequence[PreparedBatch] = ()) -> None:
        """Tell everyone who waits or watches: one call for each loop."""
        names = _touched(done)
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
        if audited := [stream for batch in done for stream in batch.audited]:
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

    def _look(self) -> None:
        if self._pen.was_changed():
            self.changed()
        # Only while nothing waits to be written.
        if self._queue.empty():
            self._pen.prune(self._clock.now())
            self._pen.report_more_behind()

    def _tell_all(self, names: frozenset[StreamId]) -> None:
        self._tell_loops(self._heard.loops(), names)
        self._heard.changed(names)

    def _tell_loops(self, loops: Iterable[asyncio.AbstractEventLoop], names: frozenset[StreamId]) -> None:
        for loop in loops:
            # A loop that was closed has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._heard.tell, loop, names)


def _touched(batches: Sequence[PreparedBatch]) -> frozenset[StreamId]:
    return frozenset(name for batch in batches for name in batch.touched)
