"""Keeps every session's `audit.jsonl` up to date with the log, in a separate thread so that no commit waits for it."""

import contextlib
import errno
import fcntl
import os
import queue
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from curtainwall.model import AnyEvent, CurtainwallError, Entry, SessionId, StreamId, record, session_of, session_stream
from curtainwall.store.audit.lines import AUDITED, START, AuditFault, Line, line_of, parse_line, verify_lines
from curtainwall.store.database import READ, Reader
from curtainwall.store.home import StorePaths, private_directory, private_file, write_all, write_durably

Decode = Callable[[Entry], AnyEvent]

# Files are synced and marked in the log after a quiet moment. If we crash before that, we only catch up again.
_QUIET_SECONDS = 0.2
_GATHER_SECONDS = 0.05
_GATHER_AT_MOST_SECONDS = 0.5
_AT_A_TIME = 64
_BREATH_SECONDS = 0.001
_REMEMBERED = 1024


_KINDS = ", ".join(f"'{kind}'" for kind in sorted(AUDITED))
_READ_AUDITED = f"{READ} AND e.kind IN ({_KINDS}) ORDER BY e.place"


class AuditBacklog(NamedTuple):
    """The log for a file: its end, the entry up to which the file was complete, and the audited entries after a cursor."""

    head: int
    audited: int
    entries: Sequence[Entry]


def backlog_reader(reader: Reader) -> Callable[[StreamId, int], AuditBacklog]:
    """Return a function that reads a stream's backlog from the log."""

    def read_backlog(stream: StreamId, after: int) -> AuditBacklog:
        head = reader.one("SELECT seq, audited FROM head WHERE stream = ?", (stream,))
        rows = reader.all(_READ_AUDITED, (stream, after)) if head else []
        seq, audited = head or (0, 0)
        return AuditBacklog(seq, audited, list(map(Entry._make, rows)))

    return read_backlog


@record
class _End:
    """How we left a file. If it has not changed since, its last line need not be read."""

    inode: int
    size: int
    seq: int
    hash: str


class Trail:
    """The audit files of one home. They are always derived from the log, so it does not matter who writes them, or how often."""

    def __init__(
        self,
        home: StorePaths,
        read: Callable[[StreamId, int], AuditBacklog],
        decode: Decode,
        mark_audited: Callable[[Mapping[StreamId, int]], None],
    ) -> None:
        self._home = home
        self._read = read
        self._decode = decode
        self._mark_audited = mark_audited
        self._queue: queue.SimpleQueue[StreamId | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._leaving = threading.Event()
        self._ends: dict[SessionId, _End] = {}
        self._unsynced: dict[StreamId, int] = {}

    def touch(self, streams: Sequence[StreamId]) -> None:
        """Note that these sessions have entries to write to their files."""
        for stream in streams:
            self._queue.put(stream)
        if self._thread is None and streams:
            # If no thread can be started, the next touch tries again. Until then the log's mark stays behind.
            with self._starting, contextlib.suppress(RuntimeError):
                self._start()

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="curtainwall-audit", daemon=True)
            thread.start()
            self._thread = thread

    def close(self) -> None:
        """Write everything that was touched, and stop the thread."""
        if self._thread is not None:
            self._leaving.set()
            self._queue.put(None)
            self._thread.join()
            self._thread = None
            self._leaving.clear()

    def rebuild(self, session: SessionId) -> int:
        """Rewrite a session's file from the log and return how many lines it has."""
        path = self._path(session)
        if path is None:
            return 0
        private_directory(path.parent)
        with _locked(path) as descriptor:
            backlog = self._read(session_stream(session), 0)
            lines = list(self._lines(backlog.entries, START))
            os.ftruncate(descriptor, 0)
            write_durably(descriptor, _bytes_of(lines))
        self._ends.pop(session, None)
        self._mark_audited({session_stream(session): backlog.head})
        return len(lines)

    def verify(self, session: SessionId) -> AuditFault | None:
        """Return the first line that does not match the log, or None."""
        path = self._path(session)
        content = _content_of(path) if path is not None else b""
        *lines, torn = content.decode(errors="replace").split("\n")
        backlog = self._read(session_stream(session), 0)
        return verify_lines(lines, self._lines(backlog.entries, START), backlog.audited, torn)

    def _run(self) -> None:
        last = False
        while not last:
            try:
                first = self._queue.get(timeout=_QUIET_SECONDS if self._unsynced else None)
            except queue.Empty:
                self._sync()
                continue
            waiting = {first: None}
            self._gather()
            with contextlib.suppress(queue.Empty):
                while True:
                    waiting[self._queue.get_nowait()] = None
            last = None in waiting
            for stream in waiting:
                if stream is not None:
                    # The log is the truth, and its mark stays behind. If anything fails here, we catch up later.
                    with contextlib.suppress(OSError, ValueError, CurtainwallError):
                        self._catch_up(stream)
        self._sync()

    def _gather(self) -> None:
        """Wait briefly, and longer while more arrives, up to a limit. A busy house is then written in one go and slows no commit."""
        deadline = time.monotonic() + _GATHER_AT_MOST_SECONDS
        arrived = 0
        while not self._leaving.wait(_GATHER_SECONDS) and self._queue.qsize() > arrived and time.monotonic() < deadline:
            arrived = self._queue.qsize()

    def _catch_up(self, stream: StreamId) -> None:
        session = session_of(stream)
        path = self._path(session) if session is not None else None
        if session is None or path is None:
            return
        after = self._ends[session].seq if session in self._ends else 0
        backlog = self._read(stream, after)
        if backlog.entries:
            private_directory(path.parent)
            with _locked(path) as descriptor:
                end = self._end_of(session, descriptor)
                # Lines missing before the mark were removed from the file. Do not restore them: that must stay visible.
                start = max(end.seq, backlog.audited)
                if start != after:
                    backlog = self._read(stream, start)
                if lines := self._build_in_steps(self._lines(backlog.entries, end.hash)):
                    content = _bytes_of(lines)
                    write_all(descriptor, content)
                    end = _End(end.inode, end.size + len(content), lines[-1].seq, lines[-1].hash)
                if len(self._ends) > _REMEMBERED:
                    self._ends.clear()
                self._ends[session] = end
        self._unsynced[stream] = backlog.head

    def _end_of(self, session: SessionId, descriptor: int) -> _End:
        """Return where the file ends, after cutting off a torn last line."""
        status = os.fstat(descriptor)
        end = self._ends.get(session)
        if end is not None and (end.inode, end.size) == (status.st_ino, status.st_size):
            return end
        whole, last = _last_line(descriptor, status.st_size)
        if whole != status.st_size:
            os.ftruncate(descriptor, whole)
        if not last:
            return _End(status.st_ino, whole, 0, START)
        line = parse_line(last)
        if line is None:
            raise ValueError("the last line was altered: it stays as it is, for `audit verify`")
        return _End(status.st_ino, whole, line.seq, line.hash)

    def _lines(self, entries: Sequence[Entry], prev: str) -> Iterator[Line]:
        for entry in entries:
            if entry.kind in AUDITED and (line := line_of(entry.seq, self._decode(entry), prev)):
                yield line
                prev = line.hash

    def _build_in_steps(self, lines: Iterable[Line]) -> list[Line]:
        """Build the lines a few at a time, because no other thread can run while we build them."""
        built: list[Line] = []
        for line in lines:
            built.append(line)
            if len(built) % _AT_A_TIME == 0:
                self._leaving.wait(_BREATH_SECONDS)
        return built

    def _sync(self) -> None:
        done: dict[StreamId, int] = {}
        for stream, upto in self._unsynced.items():
            session = session_of(stream)
            path = self._path(session) if session is not None else None
            with contextlib.suppress(OSError):
                if path is not None and path.exists():
                    _sync_file(path)
                done[stream] = upto
        self._unsynced.clear()
        if done:
            self._mark_audited(done)

    def _path(self, session: SessionId) -> Path | None:
        directory = self._home.session(session)
        return directory / "audit.jsonl" if directory else None


def _bytes_of(lines: Sequence[Line]) -> bytes:
    return "".join(f"{line.text}\n" for line in lines).encode()


def _content_of(path: Path) -> bytes:
    """Return a file's content, or nothing if it is not a regular file. Does not block if someone put a pipe there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            return b""
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return b""
    with open(descriptor, "rb") as file:
        return file.read()


def last_audited(path: Path) -> int:
    """Return the number of the last entry that has a whole line in an audit file; 0 if there is none, or no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        status = os.fstat(descriptor)
        line = parse_line(_last_line(descriptor, status.st_size)[1]) if stat.S_ISREG(status.st_mode) else None
    finally:
        os.close(descriptor)
    return line.seq if line else 0


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(path: Path) -> Generator[int]:
    """Open the file and lock it against other writers, in this and in other processes."""
    descriptor = private_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _last_line(descriptor: int, size: int) -> tuple[int, str]:
    """Return the offset at which the last whole line ends, and that line."""
    tail, start = b"", size
    while start > 0 and tail.count(b"\n") < 2:
        step = min(64 * 1024, start)
        start -= step
        tail = os.pread(descriptor, step, start) + tail
    whole = tail.rfind(b"\n") + 1
    return start + whole, tail[:whole].rstrip(b"\n").rpartition(b"\n")[2].decode(errors="replace")
