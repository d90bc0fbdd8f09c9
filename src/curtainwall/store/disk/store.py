"""The store on disk: one SQLite database and the files beside it, behind the ports of the model."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from curtainwall.model import (
    AnyEvent,
    Batch,
    Broken,
    Clock,
    Concerns,
    Entry,
    Outcome,
    Post,
    SessionId,
    StreamId,
    TryLater,
    Waiting,
    decode_command,
    decode_event,
    session_of,
)
from curtainwall.store.audit import chain
from curtainwall.store.audit.chain import ChainFault, Head
from curtainwall.store.audit.lines import AuditFault
from curtainwall.store.audit.trail import Decode, Trail, backlog_reader
from curtainwall.store.blobs import FileBlobs
from curtainwall.store.database import BUSY_MILLIS, READ, Reader, create
from curtainwall.store.disk.index import SqliteIndex
from curtainwall.store.disk.leases import OfdLeases
from curtainwall.store.disk.marks import SqliteMarks
from curtainwall.store.disk.pruner import AT_OPENING, prune
from curtainwall.store.disk.watchers import Watchers
from curtainwall.store.disk.writer_on_demand import WriterOnDemand
from curtainwall.store.faults import explain_file
from curtainwall.store.home import CUT_OFF, StorePaths, make_audit_key, name_aside, read_audit_key
from curtainwall.store.loss import CommitNote, Loss, loss_in, loss_of_database, require_whole
from curtainwall.store.snapshots import FileSnapshots

if TYPE_CHECKING:
    # Start-up time: a process that only reads needs no writer.
    from curtainwall.store.disk.writer import Writer

CROWDED: Final = 100
"""How many batches per second must arrive while others are pending before a writer process is worth it."""

QUIET: Final = 600.0
"""How many seconds an unneeded writer process is kept."""


class SqliteLog:
    """The append-only truth in one database."""

    def __init__(self, writer: WriterOnDemand, reader: Reader, watchers: Watchers) -> None:
        self._writer = writer
        self._reader = reader
        self._watchers = watchers

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        """Write the batch durably and return where its streams end now; raise `Conflict`, `TryLater` or `Broken` and write nothing."""
        return await self._writer.get().append(batch)

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Return the entries after a sequence number, oldest first."""
        rows = self._reader.all(f"{READ} ORDER BY e.place LIMIT ?", (stream, max(after, 0), -1 if limit is None else max(limit, 0)))
        return list(map(Entry._make, rows))

    def watch(self, concerns: Concerns | None = None) -> AbstractAsyncContextManager[AsyncIterator[frozenset[StreamId]]]:
        """Yield the streams that any process changed. The empty set means any stream; a post is reported as `inbox_of(stream)`."""
        return self._watchers.watch(concerns)

    def head(self, stream: StreamId) -> int:
        """Return the sequence number of the last entry, 0 for none."""
        row = self._reader.one("SELECT seq FROM head WHERE stream = ?", (stream,))
        return row[0] if row else 0

    async def erase(self, stream: StreamId, batch: Batch) -> None:
        """Delete a stream, its inbox and its projections, together with the batch that records this and decides pending commands."""
        await self._writer.get().append(batch, erase=stream)


class SqliteInbox:
    """Pending commands, in the same database."""

    def __init__(self, writer: WriterOnDemand, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def post(self, post: Post) -> None:
        """Store the command durably. A key that was posted before changes nothing."""
        await self._writer.get().post(post)

    def waiting(self, stream: StreamId) -> Sequence[Waiting]:
        """Return the undecided commands in order of arrival."""
        rows = self._reader.all("SELECT row, key, kind, payload FROM inbox WHERE stream = ? AND decided IS NULL ORDER BY row", (stream,))
        return [Waiting(row, stream, key, decode_command(kind, payload)) for row, key, kind, payload in rows]

    def streams_waiting(self) -> Sequence[StreamId]:
        """Return the streams with undecided commands, sorted by name."""
        return [StreamId(row[0]) for row in self._reader.all("SELECT DISTINCT stream FROM inbox WHERE decided IS NULL ORDER BY stream")]

    def outcome(self, stream: StreamId, key: str) -> Outcome | None:
        """Return a command's outcome, or None while it is undecided or if it is unknown."""
        row = self._reader.one("SELECT seq, code, message FROM inbox WHERE stream = ? AND key = ? AND decided IS NOT NULL", (stream, key))
        return Outcome(*row) if row else None


class SqliteStore:
    """Everything below one home: `log`, `inbox`, `leases`, `blobs`, `index`, `tallies`, `marks` and `snapshots`."""

    def __init__(self, home: StorePaths, clock: Clock, decode: Decode, busy_millis: int, with_snapshots: bool = True) -> None:
        self._home = home
        self._key = read_audit_key(home.audit_key)
        self._decode = decode
        self._busy_millis = busy_millis
        self._reader = Reader(home.database, busy_millis)
        self._trail_reader = Reader(home.database, busy_millis)
        self._watchers = Watchers(home.watch, self._look)
        self._trail = Trail(home, backlog_reader(self._trail_reader), decode, self._mark_audited)
        self._writer = WriterOnDemand(lambda: self._make_writer(clock, busy_millis))
        self.log = SqliteLog(self._writer, self._reader, self._watchers)
        self.inbox = SqliteInbox(self._writer, self._reader)
        self.leases = OfdLeases(home.leases, clock, self._writer.hint)
        self.blobs = FileBlobs(home.blobs)
        self.index = self.tallies = SqliteIndex(self._reader)
        self.marks = SqliteMarks(self._writer, self._reader)
        self.snapshots = FileSnapshots(home, self._key, self._reader) if with_snapshots else None

    @classmethod
    def open(
        cls,
        home: Path,
        clock: Clock,
        *,
        decode: Decode | None = None,
        busy_millis: int = BUSY_MILLIS,
        only_if_whole: bool = True,
        with_snapshots: bool = True,
    ) -> Self:
        """Open the store of a home directory, creating what is missing. `decode` also upgrades older events, for audit files.

        Raise `Broken` if the log has lost entries, unless `only_if_whole` is off.
        """
        paths = StorePaths(home.absolute())
        try:
            paths.prepare()
            if only_if_whole and (loss := loss_of_database(paths.root)) is not None:
                raise Broken(str(loss))
            # An existing log was sealed with a key that must exist too. Creating a new key would hide that it is missing.
            if not paths.database.exists() or paths.database.stat().st_size == 0:
                make_audit_key(paths.audit_key)
            key = read_audit_key(paths.audit_key)
            if name_aside(paths.database) is not None:
                raise Broken(f"the database `{paths.database}` is damaged, and {CUT_OFF}: run `curtainwall audit rescue`")
        except OSError as error:
            raise explain_file(error, paths.root) from error
        create(paths.database, lambda db: chain.write_seal(db, key), busy_millis)
        store = cls(paths, clock, decode or _decode_current, busy_millis, with_snapshots)
        try:
            if only_if_whole:
                with CommitNote(paths.last_commit, key) as note:
                    store._reader.run(lambda db: require_whole(db, paths, note))
            # Pruning is optional: a full disk or a long write by another process must not keep the store from opening.
            with suppress(TryLater):
                store._reader.run(lambda db: prune(db, clock.now(), 0, AT_OPENING))
        except BaseException:
            store.close()
            raise
        return store

    def allow_writer_process(self, crowded: int = CROWDED, quiet: float = QUIET) -> None:
        """Let a separate process write what comes from the running loop while `crowded` batches per second arrive before others are done.

        Commits then do not slow down the loop. The process starts only under load, and ends after `quiet` seconds without it. Calling this
        again changes nothing while the loop is alive.
        """
        self._writer.get().allow_writer_process(crowded, quiet)

    def close(self) -> None:
        """Finish pending work, release the leases and close every file; calling it twice is harmless."""
        self._writer.drain()
        self._trail.close()
        self._writer.close()
        self._watchers.close()
        self.leases.close()
        self._reader.close()
        self._trail_reader.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def heads(self) -> Sequence[Head]:
        """Return the end of every stream. Kept elsewhere, these heads reveal that an older copy was put back."""
        return self._reader.run(chain.heads)

    def verify(self, stream: StreamId | None = None, against: Iterable[Head] = ()) -> ChainFault | None:
        """Return the first fault in the log, or None."""
        return self._reader.run(lambda db: chain.verify(db, self._key, stream, against))

    def verify_lists(self) -> ChainFault | None:
        """Return the first list that does not match the log, or None. The log itself must be verified separately."""
        # Start-up time: only writing needs the lists as tables.
        from curtainwall.store.lists import verify_lists

        return self._reader.run(lambda db: verify_lists(db, self._decode))

    def loss(self) -> Loss | None:
        """Return what the log has lost according to the last commit's note and all audit files, or None."""
        note = CommitNote(self._home.last_commit, self._key)
        return self._reader.run(lambda db: loss_in(db, self._home, note, with_audit_files=True))

    def deleted(self) -> frozenset[SessionId]:
        """Return the sessions that the house log records as deleted on purpose."""
        return frozenset(session for stream in self._reader.run(chain.deleted) if (session := session_of(stream)) is not None)

    def verify_audit(self, session: SessionId) -> AuditFault | None:
        """Return the first line of a session's `audit.jsonl` that does not match the log, or None."""
        return self._trail.verify(session)

    def rebuild_audit(self, session: SessionId) -> int:
        """Rewrite a session's `audit.jsonl` from the log and return how many lines it has."""
        try:
            return self._trail.rebuild(session)
        except OSError as error:
            raise explain_file(error, self._home.root / "sessions" / session / "audit.jsonl") from error

    async def rebuild(self, decode: Decode) -> None:
        """Rebuild all lists from the log."""
        # Start-up time: only writing needs the lists as tables.
        from curtainwall.store.lists import rebuild_lists

        await self._writer.get().run(lambda db: rebuild_lists(db, decode))

    def collect_blobs(self) -> int:
        """Delete blobs older than a day that neither the log nor the inbox names, and return how many were deleted."""
        query = "SELECT payload FROM entry UNION ALL SELECT payload FROM inbox WHERE decided IS NULL"
        # It reads the whole log, and nobody else may have to wait for that.
        with closing(Reader(self._home.database, self._busy_millis)) as reader:
            return reader.run(lambda db: self.blobs.collect(row[0] for row in db.execute(query)))

    def _look(self) -> None:
        self._writer.look()

    def _mark_audited(self, upto: Mapping[StreamId, int]) -> None:
        self._writer.mark_audited(upto)

    def _make_writer(self, clock: Clock, busy_millis: int) -> "Writer":
        from curtainwall.store.disk.protocol import WriterTerms
        from curtainwall.store.disk.writer import CommitListener, Writer

        listener = CommitListener(self._watchers.tell_others, self._trail.touch, self._watchers.loops, self._watchers.tell)
        return Writer(WriterTerms(self._home, self._key, busy_millis, self._decode), clock, listener)


def _decode_current(entry: Entry) -> AnyEvent:
    return decode_event(entry.kind, entry.payload)
