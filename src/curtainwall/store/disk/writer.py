"""The store's writer: commits all waiting batches together, in a thread or in a separate process."""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from curtainwall.model import Batch, Clock, CurtainwallError, Post, StreamId, TryLater, record
from curtainwall.store.disk.committer import Committer
from curtainwall.store.disk.ledger import PreparedBatch, prepare, prepare_post
from curtainwall.store.disk.protocol import WriterTerms
from curtainwall.store.faults import unsure

if TYPE_CHECKING:
    # Start-up time: only a busy process uses a writer process.
    from curtainwall.store.disk.writer_process import Pending, WaitForEnd, WriterSwitch

_GROUP = 256


@dataclass(slots=True, eq=False)
class _Job:
    """Work and the future that waits for it: a batch, or a function that needs the database to itself."""

    work: PreparedBatch | Callable[[sqlite3.Connection], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


@record
class _Marks:
    """Streams whose audit files are complete up to an entry."""

    upto: Mapping[StreamId, int]


@record
class _Hint:
    """A name to announce to watchers although nothing was written."""

    name: StreamId


@record
class _Barrier:
    """A callback to run once everything queued before it is done."""

    tell: Callable[[], object]


@record
class _Leftover:
    """Jobs left by a writer process that is dying. They are resumed once it is dead."""

    jobs: Sequence[_Job]
    death: "WaitForEnd"


_LOOK, _STOP = object(), object()
_Result = tuple[_Job, object, CurtainwallError | None]


@record
class CommitListener:
    """Callbacks to the rest of the store after a commit. All except `tell` may be called from any thread."""

    changed: Callable[[frozenset[StreamId]], None]
    audited: Callable[[Sequence[StreamId]], None]
    loops: Callable[[], set[asyncio.AbstractEventLoop]]
    tell: Callable[[asyncio.AbstractEventLoop, frozenset[StreamId]], None]


class Writer:
    """The writer of one store: a thread and, if an event loop asks for it, a process for everything from that loop."""

    def __init__(self, terms: WriterTerms, clock: Clock, listener: CommitListener) -> None:
        self._terms = terms
        self._clock = clock
        self._listener = listener
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._switch: WriterSwitch | None = None
        # Used only by the writer thread.
        self._committer = Committer(terms.home, terms.key, terms.busy_millis, listener.audited)

    def append(self, batch: Batch, erase: StreamId | None = None) -> Awaitable[Mapping[StreamId, int]]:
        """Return where the batch's streams end once it is durable; `erase` names a stream to delete with it."""
        return self.write(prepare(batch, erase))

    def post(self, post: Post) -> Awaitable[Mapping[StreamId, int]]:
        """Store a command in an inbox durably."""
        return self.write(PreparedBatch([], [], [prepare_post(post)]))

    def write(self, batch: PreparedBatch) -> Awaitable[Mapping[StreamId, int]]:
        """Return where the batch's streams end once it is durable. Cancelling does not undo it."""
        switch = self._switch
        if switch is None or self._closed or switch.loop is not asyncio.get_running_loop():
            return self.submit(batch)
        return switch.write(batch)

    def run(self, work: Callable[[sqlite3.Connection], Any]) -> Awaitable[Any]:
        """Run a function on the database in a separate transaction and return its result."""
        return self._submit(work)

    def allow_writer_process(self, crowded: int, quiet: float) -> None:
        """Let a separate process write what comes from the running loop while it is busy. Only one loop at a time can have this."""
        # Start-up time: only a busy process uses a writer process.
        from curtainwall.store.disk.writer_process import WriterSwitch

        switch = self._switch
        if switch is not None:
            if not switch.loop.is_closed():
                return
            switch.close()
        self._switch = WriterSwitch(self._terms, self._clock, self, crowded, quiet)

    def mark_audited(self, upto: Mapping[StreamId, int]) -> None:
        """Record how far audit files are complete, with the next commit."""
        self._queue.put(_Marks(upto))

    def look(self) -> None:
        """Check whether another process wrote, and notify the watchers."""
        switch = self._switch
        # What the process sees is reported only on its loop.
        if switch is not None and switch.is_by_process and not switch.loop.is_closed():
            switch.look()
            return
        # Only a hint: if it cannot be queued now, the next look finds the change.
        with self._lock, contextlib.suppress(TryLater):
            if not self._closed:
                self._put(_LOOK)

    def hint(self, name: StreamId) -> None:
        """Announce a name to all watchers; does nothing if the store is closed."""
        with self._lock, contextlib.suppress(TryLater):
            if not self._closed:
                self._put(_Hint(name))

    def drain(self) -> None:
        """Refuse new work, and wait until all accepted work is done."""
        with self._lock:
            self._closed = True
        self._wait_for_thread()
        if self._switch is not None:
            self._switch.finish()
            # The thread now has what the process left undecided.
            self._wait_for_thread()

    def close(self) -> None:
        """Finish pending work, and end the process and the thread."""
        self.drain()
        if self._switch is not None:
            self._switch.close()
        if self._thread is not None:
            self._queue.put(_STOP)
            self._thread.join()
            self._thread = None

    def submit(self, batch: PreparedBatch) -> asyncio.Future[Mapping[StreamId, int]]:
        """Queue a batch for the thread."""
        return self._submit(batch)

    def take_back(self, waiting: "Sequence[Pending]", loop: asyncio.AbstractEventLoop, death: "WaitForEnd") -> None:
        """Take over batches, with their futures, from a process that is dying. Some may already be in the database."""
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
        # The process may have left audit files behind.
        self.reached(self._committer.report_behind)

    def reached(self, tell: Callable[[], object]) -> None:
        """Call `tell` when everything accepted so far is done."""
        with self._lock:
            if self._thread is not None:
                self._put(_Barrier(tell))
                return
        tell()

    def wrote(self, done: Sequence[PreparedBatch], loop: asyncio.AbstractEventLoop) -> None:
        """Notify watchers of what the process wrote; called on its loop. The process updates the audit files itself."""
        names = _touched(done)
        for each in self._listener.loops():
            if each is loop:
                self._listener.tell(each, names)
            else:
                self._tell_loops([each], names)
        self._listener.changed(names)

    def changed(self) -> None:
        """Notify watchers that another process wrote."""
        self._tell_loops(self._listener.loops(), frozenset())

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
            should_look = False
            barriers: list[_Barrier] = []
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
                    barriers.append(item)
                else:
                    should_look = should_look or item is _LOOK
                    stopping = stopping or item is _STOP
            if jobs or marks:
                self._work(jobs, marks)
            if hints:
                self._tell_all(frozenset(hints))
            if should_look:
                self._look()
            for barrier in barriers:
                # Nobody waits on a loop that was closed.
                with contextlib.suppress(RuntimeError):
                    barrier.tell()
        self._committer.close()

    def _take(self) -> list[object]:
        items = [self._queue.get()]
        try:
            while len(items) < _GROUP:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return items

    def _work(self, jobs: list[_Job], marks: dict[StreamId, int]) -> None:
        """Process jobs in order: adjacent batches together, everything else alone."""
        group: list[tuple[_Job, PreparedBatch]] = []
        for job in jobs:
            if isinstance(job.work, PreparedBatch):
                group.append((job, job.work))
            else:
                self._commit(group, {})
                group = []
                try:
                    self._settle([(job, self._committer.run(job.work), None)])
                except CurtainwallError as error:
                    self._settle([(job, None, error)])
        self._commit(group, marks)

    def _commit(self, group: Sequence[tuple[_Job, PreparedBatch]], marks: Mapping[StreamId, int]) -> None:
        written = self._committer.commit([batch for _, batch in group], marks, self._clock.now())
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
        """Notify everyone who waits or watches, with one call per loop."""
        names = _touched(done)
        by_loop: dict[asyncio.AbstractEventLoop, list[_Result]] = {}
        for result in results:
            by_loop.setdefault(result[0].loop, []).append(result)
        if names:
            for loop in self._listener.loops():
                by_loop.setdefault(loop, [])
        for loop, loop_results in by_loop.items():
            # Nobody waits on a loop that was closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._deliver, loop, loop_results, names)
        if names:
            self._listener.changed(names)
        if audited := [stream for batch in done for stream in batch.audited]:
            self._listener.audited(audited)

    def _deliver(self, loop: asyncio.AbstractEventLoop, results: list[_Result], names: frozenset[StreamId]) -> None:
        for job, result, error in results:
            if job.future.done():
                continue
            if error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)
        if names:
            self._listener.tell(loop, names)

    def _look(self) -> None:
        if self._committer.was_changed():
            self.changed()
        # Only while nothing is waiting to be written.
        if self._queue.empty():
            self._committer.prune(self._clock.now())
            self._committer.report_more_behind()

    def _tell_all(self, names: frozenset[StreamId]) -> None:
        self._tell_loops(self._listener.loops(), names)
        self._listener.changed(names)

    def _tell_loops(self, loops: Iterable[asyncio.AbstractEventLoop], names: frozenset[StreamId]) -> None:
        for loop in loops:
            # Nobody waits on a loop that was closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._listener.tell, loop, names)


def _touched(batches: Sequence[PreparedBatch]) -> frozenset[StreamId]:
    return frozenset(name for batch in batches for name in batch.touched)
