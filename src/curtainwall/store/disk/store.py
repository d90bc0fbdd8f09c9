"""The store on disk: one SQLite database and the files beside it, behind the ports of the model."""

import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing, suppress
from pathlib import Path
from typing import Self

from curtainwall.model import (
    AnyEvent,
    Batch,
    Broken,
    Clock,
    Concerns,
    Entry,
    Millis,
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
from curtainwall.store import database
from curtainwall.store.audit import chain
from curtainwall.store.audit.chain import ChainFault, Head
from curtainwall.store.audit.lines import AuditFault
from curtainwall.store.audit.trail import Decode, Trail, backlog_reader
from curtainwall.store.blobs import FileBlobs
from curtainwall.store.database import BUSY_MILLIS, PROJECTIONS, READ, Reader, create, create_lists
from curtainwall.store.disk.committer import AT_OPENING, prune
from curtainwall.store.disk.index import SqliteIndex
from curtainwall.store.disk.leases import OfdLeases
from curtainwall.store.disk.ledger import PreparedBatch, prepare, prepare_post
from curtainwall.store.disk.marks import SqliteMarks
from curtainwall.store.disk.protocol import WriterTerms
from curtainwall.store.disk.watchers import Watchers
from curtainwall.store.disk.writer import CROWDED, QUIET, CommitListener, Writer
from curtainwall.store.faults import explain_file
from curtainwall.store.home import CUT_OFF, StorePaths, make_audit_key, name_aside, read_audit_key
from curtainwall.store.loss import CommitNote, Loss, loss_in, loss_of_database, require_whole
from curtainwall.store.projection import changes


class SqliteLog:
    """The append-only truth in one database."""

    def __init__(self, writer: Writer, reader: Reader, watching: Watchers) -> None:
        self._writer = writer
        self._reader = reader
        self._watching = watching

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        """Write the batch durably and return where its streams end now; raise `Conflict`, `TryLater` or `Broken` and write nothing."""
        return await self._writer.write(prepare(batch))

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Return the entries after a sequence number, oldest first."""
        rows = self._reader.all(f"{READ} ORDER BY e.place LIMIT ?", (stream, max(after, 0), -1 if limit is None else max(limit, 0)))
        return list(map(Entry._make, rows))

    def watch(self, concerns: Concerns | None = None) -> AbstractAsyncContextManager[AsyncIterator[frozenset[StreamId]]]:
        """Tell which streams changed, by any process; the empty set means that any may have. A post is told as `inbox_of(stream)`."""
        return self._watching.watch(concerns)

    def head(self, stream: StreamId) -> int:
        """Return the sequence number of the last entry, 0 for none."""
        row = self._reader.one("SELECT seq FROM head WHERE stream = ?", (stream,))
        return row[0] if row else 0

    async def erase(self, stream: StreamId, batch: Batch) -> None:
        """Delete a stream, its inbox and everything projected from it, together with the batch that records so and decides what waits."""
        await self._writer.write(prepare(batch, erase=stream))


class SqliteInbox:
    """Commands that wait, in the same database."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def post(self, post: Post) -> None:
        """Keep the command durably; a key that was posted before changes nothing."""
        await self._writer.write(PreparedBatch([], [], [prepare_post(post)]))

    def waiting(self, stream: StreamId) -> Sequence[Waiting]:
        """Return the undecided commands in the order in which they came."""
        rows = self._reader.all("SELECT row, key, kind, payload FROM inbox WHERE stream = ? AND decided IS NULL ORDER BY row", (stream,))
        return [Waiting(row, stream, key, decode_command(kind, payload)) for row, key, kind, payload in rows]

    def streams_waiting(self) -> Sequence[StreamId]:
        """Return the streams for which a command waits, in their order by name."""
        return [StreamId(row[0]) for row in self._reader.all("SELECT DISTINCT stream FROM inbox WHERE decided IS NULL ORDER BY stream")]

    def outcome(self, stream: StreamId, key: str) -> Outcome | None:
        """Return what became of a command, or None while it waits or is unknown."""
        row = self._reader.one("SELECT seq, code, message FROM inbox WHERE stream = ? AND key = ? AND decided IS NOT NULL", (stream, key))
        return Outcome(*row) if row else None


class SqliteStore:
    """Everything below one home: `log`, `inbox`, `leases`, `blobs`, `index`, `tallies` and `marks`, and what keeps them honest."""

    def __init__(self, home: StorePaths, clock: Clock, decode: Decode, busy_millis: int) -> None:
        self._home = home
        self._key = read_audit_key(home.audit_key)
        self._decode = decode
        self._reader = Reader(home.database, busy_millis)
        self._trail_reader = Reader(home.database, busy_millis)
        self._watching = Watchers(home.watch, self._look)
        self._trail = Trail(home, backlog_reader(self._trail_reader), decode, self._marked)
        listener = CommitListener(self._watching.tell_others, self._trail.touch, self._watching.loops, self._watching.tell)
        self._writer = Writer(WriterTerms(home, self._key, busy_millis, decode), clock, listener)
        self.log = SqliteLog(self._writer, self._reader, self._watching)
        self.inbox = SqliteInbox(self._writer, self._reader)
        self.leases = OfdLeases(home.leases, clock, self._writer.hint)
        self.blobs = FileBlobs(home.blobs)
        self.index = self.tallies = SqliteIndex(self._reader)
        self.marks = SqliteMarks(self._writer, self._reader)

    @classmethod
    def open(
        cls, home: Path, clock: Clock, *, decode: Decode | None = None, busy_millis: int = BUSY_MILLIS, only_if_whole: bool = True
    ) -> Self:
        """Open the store of a home directory, making what is missing; `decode` also lifts older events, for audit files.

        A log that has lost entries is refused with `Broken`, unless somebody wants to look at it all the same.
        """
        places = StorePaths(home.absolute())
        try:
            places.prepare()
            if only_if_whole and (loss := loss_of_database(places.root)) is not None:
                raise Broken(str(loss))
            # A log that is there was sealed with a key that must be there too; a new one would only hide that.
            if not places.database.exists() or places.database.stat().st_size == 0:
                make_audit_key(places.audit_key)
            key = read_audit_key(places.audit_key)
            if name_aside(places.database) is not None:
                raise Broken(f"the database `{places.database}` is damaged, and {CUT_OFF}: run `curtainwall audit rescue`")
        except OSError as error:
            raise explain_file(error, places.root) from error
        create(places.database, lambda db: chain.write_seal(db, key), busy_millis)
        store = cls(places, clock, decode or _current, busy_millis)
        try:
            if only_if_whole:
                with CommitNote(places.last_commit, key) as note:
                    store._reader.run(lambda db: require_whole(db, places, note))
            # Only tidying: a disk that is full, or somebody who writes for long, keeps nobody out.
            with suppress(TryLater):
                store._reader.run(lambda db: prune(db, clock.now(), 0, AT_OPENING))
        except BaseException:
            store.close()
            raise
        return store

    def allow_writer_process(self, crowded: int = CROWDED, quiet: float = QUIET) -> None:
        """Let a process of its own write what comes from the running loop, while so many batches a second come before others are done.

        Commits then take nothing from what else goes on there. A house that is not crowded starts none, and lets it go after so many quiet
        seconds. To ask for it again changes nothing while that loop lives.
        """
        self._writer.allow_writer_process(crowded, quiet)

    def close(self) -> None:
        """Finish what waits, release the leases, and let go of every file; calling it twice is harmless."""
        self._writer.drain()
        self._trail.close()
        self._writer.close()
        self._watching.close()
        self.leases.close()
        self._reader.close()
        self._trail_reader.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def heads(self) -> Sequence[Head]:
        """Return where every stream ends; printed and kept elsewhere, they show that an older copy was put back."""
        return self._reader.run(chain.heads)

    def verify(self, stream: StreamId | None = None, against: Iterable[Head] = ()) -> ChainFault | None:
        """Return the first thing that is wrong with the log, or None."""
        return self._reader.run(lambda db: chain.verify(db, self._key, stream, against))

    def verify_lists(self) -> ChainFault | None:
        """Return the first list that does not show what the log says, or None; the log itself has to be what was written."""
        return self._reader.run(lambda db: verify_lists(db, self._decode))

    def loss(self) -> Loss | None:
        """Return what the log is known to have lost, by the note of the last commit and every audit file, or None."""
        note = CommitNote(self._home.last_commit, self._key)
        return self._reader.run(lambda db: loss_in(db, self._home, note, with_audit_files=True))

    def deleted(self) -> frozenset[SessionId]:
        """Return the sessions that were deleted on purpose, as the house's own log tells."""
        return frozenset(found for stream in self._reader.run(chain.deleted) if (found := session_of(stream)) is not None)

    def verify_audit(self, session: SessionId) -> AuditFault | None:
        """Return the first line of a session's `audit.jsonl` that is not what the log says, or None."""
        return self._trail.verify(session)

    def rebuild_audit(self, session: SessionId) -> int:
        """Write a session's `audit.jsonl` anew from the log and return how many lines it has."""
        try:
            return self._trail.rebuild(session)
        except OSError as error:
            raise explain_file(error, self._home.root / "sessions" / session / "audit.jsonl") from error

    async def rebuild(self, decode: Decode) -> None:
        """Make all lists anew from the log."""
        await self._writer.run(lambda db: rebuild_lists(db, decode))

    def collect_blobs(self) -> int:
        """Delete the blobs of yesterday and before that neither log nor inbox name, and return how many went."""
        named = "SELECT payload FROM entry UNION ALL SELECT payload FROM inbox WHERE decided IS NULL"
        return self._reader.run(lambda db: self.blobs.collect(row[0] for row in db.execute(named)))

    def _look(self) -> None:
        self._writer.look()

    def _marked(self, upto: Mapping[StreamId, int]) -> None:
        self._writer.mark_audited(upto)


def _current(entry: Entry) -> AnyEvent:
    return decode_event(entry.kind, entry.payload)


def rebuild_lists(db: sqlite3.Connection, decode: Decode) -> None:
    """Make all lists anew from the log, inside the transaction that is open."""
    for table in PROJECTIONS:
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own tables
    for number, at in _fill_lists(db, db, decode):
        db.execute("UPDATE head SET at = ? WHERE id = ? AND at <> ?", (at, number, at))


def verify_lists(db: sqlite3.Connection, decode: Decode) -> ChainFault | None:
    """Return the first list that does not show what the log says, or None."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as expected:
        create_lists(expected)
        for _ in _fill_lists(db, expected, decode):
            pass
        for table in PROJECTIONS:
            shown, wanted = database.rows_of(db, table), database.rows_of(expected, table)
            if shown != wanted:
                which = next(iter(sorted(shown ^ wanted, key=repr)))[0]
                kind = "lacks or changes" if wanted - shown else "shows"
                words = f"the list of {table}s {kind} what the log says otherwise of `{which}`; `curtainwall audit rebuild` makes it anew"
                return ChainFault(None, None, "list altered", words)
    return None


def _fill_lists(log: sqlite3.Connection, lists: sqlite3.Connection, decode: Decode) -> Iterator[tuple[int, Millis]]:
    """Tell every stream of a log in the lists, and yield its number and when its last entry was written."""
    for number, name in log.execute("SELECT id, stream FROM head ORDER BY id").fetchall():
        stream, at = StreamId(name), 0
        for row in log.execute(f"{READ} ORDER BY e.place", (stream, 0)):
            event = decode(Entry._make(row))
            at = event.at
            for change in changes(stream, event):
                database.apply(lists, change)
        yield number, at
