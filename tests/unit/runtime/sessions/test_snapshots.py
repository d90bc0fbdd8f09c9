"""A fold that begins at a snapshot is the fold of the whole log, and a snapshot that does not fit is as good as none."""

import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from curtainwall.model import (
    Entry,
    FoldSnapshot,
    FoldSnapshots,
    Log,
    MessageAccepted,
    MessageId,
    SendMessage,
    SessionReady,
    StreamEnd,
    StreamId,
    TurnId,
    TurnStarted,
    entry_hash,
    session_of,
    session_stream,
)
from curtainwall.runtime import SessionRegistry, SystemClock
from curtainwall.runtime.sessions.folds import SessionFolds, StateCache
from curtainwall.session import FOLD_VERSION, KeptFold, Rules, SessionState, encode_fold, fold, lift
from curtainwall.store import SqliteStore
from curtainwall.store.database import STREAM_SHIFT
from tests.support.covers import covers
from tests.support.houses import ANN, open_session, policy
from tests.support.stores import NOON, A, B, StillClock, asked, batch, granted, opened, requested, spoke, turn_ended
from tests.support.waiting import eventually, run

TURNS, MORE = 20, 5


class Counted:
    """A log that counts what is read from it."""

    def __init__(self, log: Log) -> None:
        self.append, self.watch, self.head, self.erase = log.append, log.watch, log.head, log.erase
        self._read = log.read
        self.entries = 0

    def read(self, stream: StreamId, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        found = self._read(stream, after, limit)
        self.entries += len(found)
        return found


class Home:
    """A home with two sessions that have a snapshot each, and more entries since."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = SqliteStore.open(root, StillClock(), decode=lift)
        for stream in (A, B):
            self.write(stream, 0, TURNS)
            assert self.folds.save(stream, self.folds.fold(stream))
            self.write(stream, TURNS, MORE)

    @property
    def folds(self) -> SessionFolds:
        return SessionFolds(self.store.log, self.snapshots, every=1)

    @property
    def snapshots(self) -> FoldSnapshots:
        assert self.store.snapshots is not None
        return self.store.snapshots

    def write(self, stream: StreamId, begin: int, turns: int) -> None:
        first = (opened(str(session_of(stream))), SessionReady(at=NOON), requested("c1"), asked(), granted()) if begin == 0 else ()
        events = [
            event
            for number in range(begin, begin + turns)
            for event in (
                MessageAccepted(at=NOON, message=MessageId(f"m{number}"), text=f"hello {stream} {number}", by=ANN),
                TurnStarted(at=NOON, turn=TurnId(f"t{number}"), messages=(MessageId(f"m{number}"),)),
                spoke(f"{stream} {number}"),
                turn_ended(turn=f"t{number}"),
            )
        ]
        run(self.store.log.append(batch(stream, self.store.log.head(stream), *first, *events)))

    def file(self, stream: StreamId = A) -> Path:
        return self.root / "cache" / str(session_of(stream))

    def whole(self, stream: StreamId = A) -> SessionState:
        """Return what a fold of the whole log gives, without any snapshot."""
        return SessionFolds(self.store.log).fold(stream).state

    def sql(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.root / "curtainwall.db", isolation_level=None)) as db:
            assert db.execute(statement, values).rowcount > 0, "nothing was changed"

    def place(self, seq: int, stream: StreamId = A) -> int:
        with closing(sqlite3.connect(self.root / "curtainwall.db")) as db:
            (number,) = db.execute("SELECT id FROM head WHERE stream = ?", (stream,)).fetchone()
        return (number << STREAM_SHIFT) + seq


SNAPSHOT_AT = 5 + 4 * TURNS
END = SNAPSHOT_AT + 4 * MORE


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    yield made
    made.store.close()


@covers("runtime.a-long-log-is-resumed-from-a-snapshot")
def test_a_fold_from_a_snapshot_reads_only_what_came_after_it_and_is_that_of_the_whole_log(home: Home) -> None:
    counted = Counted(home.store.log)
    folded = SessionFolds(counted, home.snapshots).fold(A)
    assert counted.entries == 4 * MORE
    whole = SessionFolds(home.store.log).fold(A)
    assert (folded.state, folded.seq, folded.logged) == (whole.state, END, whole.logged)
    assert folded.is_checked
    assert list(folded.state.settled) == list(whole.state.settled)


def test_a_look_at_a_session_begins_at_its_snapshot_too(home: Home) -> None:
    counted = Counted(home.store.log)
    states = StateCache(counted, SessionFolds(counted, home.snapshots))
    assert states.state(A) == home.whole()
    assert counted.entries == 4 * MORE
    home.write(A, TURNS + MORE, 1)
    assert states.state(A) == home.whole()
    assert counted.entries == 4 * MORE + 4


def _flip(place: float) -> Callable[[Home], None]:
    def damage(home: Home) -> None:
        content = bytearray(home.file().read_bytes())
        content[min(int(len(content) * place), len(content) - 1)] ^= 1
        home.file().write_bytes(content)

    return damage


def _cut(keep: int) -> Callable[[Home], None]:
    def damage(home: Home) -> None:
        home.file().write_bytes(home.file().read_bytes()[:keep])

    return damage


def _lengthened(home: Home) -> None:
    home.file().write_bytes(home.file().read_bytes() + b" ")


def _swap(home: Home) -> None:
    shutil.copyfile(home.file(B), home.file(A))


def _other_home(home: Home) -> None:
    other = Home(home.root.with_name("other"))
    other.store.close()
    # Both logs are the same to the byte; only the key differs.
    assert other.file().read_bytes()[:16] == home.file().read_bytes()[:16]
    shutil.copyfile(other.file(), home.file())


def _end(home: Home) -> StreamEnd:
    [entry] = home.store.log.read(A, SNAPSHOT_AT - 1, 1)
    return StreamEnd(SNAPSHOT_AT, entry.hash)


def _older_fold(home: Home) -> None:
    """Seal a state that only another fold can have made."""
    payload = encode_fold(KeptFold(SessionState(name="of another fold"), 1))
    assert payload is not None
    assert home.snapshots.save(FoldSnapshot(A, _end(home), "older", payload))


def _sealed_garbage(home: Home) -> None:
    assert home.snapshots.save(FoldSnapshot(A, _end(home), FOLD_VERSION, b'[{"state": 1}, NaN]'))


def _sealed_depth(home: Home) -> None:
    assert home.snapshots.save(FoldSnapshot(A, _end(home), FOLD_VERSION, b"[" * 200_000))


def _directory(home: Home) -> None:
    home.file().unlink()
    home.file().mkdir()


def _pipe(home: Home) -> None:
    home.file().unlink()
    os.mkfifo(home.file())


def _link(home: Home) -> None:
    home.file().rename(home.root / "elsewhere")
    home.file().symlink_to(home.root / "elsewhere")


def _huge(home: Home) -> None:
    os.truncate(home.file(), 1 << 40)


FILES: dict[str, Callable[[Home], None]] = {
    "deleted": lambda home: home.file().unlink(),
    "directory deleted": lambda home: shutil.rmtree(home.root / "cache"),
    "empty": _cut(0),
    "cut in its format": _cut(5),
    "cut in its MAC": _cut(30),
    "cut in its state": _cut(400),
    "one byte short": _cut(-1),
    "one byte longer": _lengthened,
    **{f"bit flipped at {place:.2f}": _flip(place) for place in (0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.5, 1)},
    "of another session": _swap,
    "of another home": _other_home,
    "of another fold": _older_fold,
    "sealed garbage": _sealed_garbage,
    "sealed and too deep": _sealed_depth,
    "a directory": _directory,
    "a pipe": _pipe,
    "a link": _link,
    "too large": _huge,
}


@covers("runtime.a-snapshot-that-does-not-fit-counts-as-none")
@pytest.mark.parametrize("damage", FILES.values(), ids=FILES)
def test_a_file_that_is_not_the_snapshot_that_we_made_counts_as_none(home: Home, damage: Callable[[Home], None]) -> None:
    damage(home)
    counted = Counted(home.store.log)
    folded = SessionFolds(counted, home.snapshots).fold(A)
    assert folded.state == home.whole()
    assert counted.entries == END, "the snapshot was used"
    if not home.file().is_dir():
        # And the next one takes its place.
        assert home.folds.save(A, folded)
        assert home.snapshots.load(A, FOLD_VERSION) is not None


@covers("runtime.a-snapshot-that-does-not-fit-counts-as-none")
def test_a_sealed_snapshot_is_loaded_only_for_its_session_and_its_entry(home: Home) -> None:
    whole = encode_fold(KeptFold(home.whole(), 1))
    assert whole is not None
    assert home.snapshots.save(FoldSnapshot(A, _end(home), FOLD_VERSION, whole))
    assert home.snapshots.load(A, FOLD_VERSION) is not None
    # The fold would read on from it and notice; what does not fit is not read at all.
    assert home.snapshots.save(FoldSnapshot(A, StreamEnd(SNAPSHOT_AT, bytes(32)), FOLD_VERSION, whole))
    assert home.snapshots.load(A, FOLD_VERSION) is None
    assert home.snapshots.save(FoldSnapshot(B, _end(home), FOLD_VERSION, whole))
    _swap(home)
    assert home.snapshots.load(A, FOLD_VERSION) is None


def _edit(seq: int, kind: str = "AS TEXT") -> Callable[[Home], None]:
    def edited(home: Home) -> None:
        home.sql(f"UPDATE entry SET payload = CAST(replace(payload, 'hello', 'forge') {kind}) WHERE place = ?", home.place(seq))

    return edited


def _exchange(home: Home, turns: int) -> None:
    """Put another session's log, sealed by us, in the place of this one; as long as that many turns make it."""
    run(home.store.log.erase(A, batch(B, home.store.log.head(B))))
    home.write(A, 0, 1)
    home.write(A, 100, turns)


def _rehash(home: Home) -> None:
    """Edit the last entry and make its hash and that of the head fit, as anybody can who has no key."""
    before, last = home.store.log.read(A, END - 2)
    forged = last.payload.replace(b"done", b"failed")
    digest = entry_hash(before.hash, A.encode(), END, last.kind, last.version, forged)
    home.sql("UPDATE entry SET payload = ?, hash = ? WHERE place = ?", forged, digest, home.place(END))
    home.sql("UPDATE head SET hash = ? WHERE stream = ?", digest, A)


def _edit_both(home: Home) -> None:
    """Edit what a snapshot would hide, and something after it: the whole log is read then, as if there were none."""
    home.sql("UPDATE entry SET payload = CAST(replace(payload, 'name of', 'not the') AS BLOB) WHERE place = ?", home.place(1))
    _edit(SNAPSHOT_AT + 1, "AS BLOB")(home)


LOGS: dict[str, tuple[Callable[[Home], None], bool]] = {
    "edited after it": (_edit(SNAPSHOT_AT + 1, "AS BLOB"), True),
    "edited before and after it": (_edit_both, True),
    "edited after it with a value of another type": (_edit(SNAPSHOT_AT + 1), True),
    "edited at the end with hashes that fit": (_rehash, True),
    "an entry taken out after it": (lambda home: home.sql("DELETE FROM entry WHERE place = ?", home.place(SNAPSHOT_AT + 2)), True),
    "cut after it": (
        lambda home: home.sql("DELETE FROM entry WHERE place > ? AND place < ?", home.place(END - 4), home.place(END + 9)),
        True,
    ),
    "cut at it": (
        lambda home: home.sql("DELETE FROM entry WHERE place >= ? AND place < ?", home.place(SNAPSHOT_AT), home.place(END + 9)),
        True,
    ),
    "its head set back": (lambda home: home.sql("UPDATE head SET seq = ? WHERE stream = ?", SNAPSHOT_AT - 1, A), True),
    "its head gone": (lambda home: home.sql("DELETE FROM head WHERE stream = ?", A), True),
    "shorter": (lambda home: _exchange(home, 2), False),
    "longer": (lambda home: _exchange(home, TURNS * 2), False),
    "just as long": (lambda home: _exchange(home, TURNS + MORE - 1), False),
}


@covers("runtime.a-snapshot-that-does-not-fit-counts-as-none")
@pytest.mark.parametrize(("change", "is_forged"), LOGS.values(), ids=LOGS)
def test_a_snapshot_of_another_log_counts_as_none(home: Home, change: Callable[[Home], None], is_forged: bool) -> None:
    change(home)
    folded = home.folds.fold(A)
    assert folded.state == home.whole()
    assert (home.store.verify() is not None) == is_forged
    assert home.folds.is_due(folded) != is_forged, "what was forged would be sealed, or what is whole would not be"


@pytest.mark.parametrize(
    ("seq", "written", "forged"), [(1, b"name of", b"not the"), (5, b"/etc/hosts", b"/etc/other")], ids=["name", "grant"]
)
def test_an_edit_before_a_snapshot_changes_nothing_and_is_found_when_everything_is_read(
    home: Home, seq: int, written: bytes, forged: bytes
) -> None:
    before = home.whole()
    [entry] = home.store.log.read(A, seq - 1, 1)
    home.sql("UPDATE entry SET payload = ? WHERE place = ?", entry.payload.replace(written, forged), home.place(seq))
    assert home.whole() != before, "the edit does not show"
    assert home.folds.fold(A).state == before
    fault = home.store.verify()
    assert fault is not None
    assert (fault.stream, fault.seq) == (A, seq)
    home.file().unlink()
    folded = home.folds.fold(A)
    assert not home.folds.is_due(folded), "what was forged would be sealed"


def test_a_log_that_is_not_what_was_written_is_reported(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.folds.fold(A)
    assert not caplog.records
    _edit(SNAPSHOT_AT + 1)(home)
    with caplog.at_level(logging.WARNING):
        home.folds.fold(A)
    assert "audit verify" in caplog.text


def test_where_the_cache_cannot_be_written_nothing_else_fails(home: Home) -> None:
    shutil.rmtree(home.root / "cache")
    (home.root / "cache").write_text("in the way")
    folded = home.folds.fold(A)
    assert folded.state == home.whole()
    assert not home.folds.save(A, folded)
    home.snapshots.remove(A)


def test_a_snapshot_that_was_being_written_when_its_process_died_is_no_snapshot(home: Home) -> None:
    draft = home.file().with_name(f".{home.file().name}.1.1")
    draft.write_bytes(home.file().read_bytes()[:100])
    assert home.folds.fold(A).state == home.whole()
    home.snapshots.remove(A)
    assert list((home.root / "cache").iterdir()) == [home.file(B)]


def test_nothing_stays_of_a_session_that_is_deleted_while_its_snapshot_is_made(home: Home) -> None:
    folded = home.folds.fold(A)
    run(home.store.log.erase(A, batch(B, home.store.log.head(B))))
    assert not home.folds.save(A, folded)
    assert not home.file().exists()


def test_snapshots_are_for_their_owner_alone(home: Home) -> None:
    assert [path.stat().st_mode & 0o777 for path in (home.file(), home.file().parent)] == [0o600, 0o700]


# A house


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


class Saves:
    """Snapshots that tell when one was saved."""

    def __init__(self, store: SqliteStore) -> None:
        assert store.snapshots is not None
        self.load, self.remove, self.end = store.snapshots.load, store.snapshots.remove, store.snapshots.end
        self._save = store.snapshots.save
        self.saved: list[int] = []

    def save(self, snapshot: FoldSnapshot) -> bool:
        self.saved.append(snapshot.end.seq)
        return self._save(snapshot)


def message(number: int) -> SendMessage:
    return SendMessage(by=ANN, message=MessageId(f"m{number}"), text="hello")


@covers("runtime.snapshots-cost-no-turn-anything")
def test_a_session_is_saved_when_it_is_let_go_and_never_while_it_works(tmp_path: Path, workspace: Path) -> None:
    async def work() -> None:
        rules = Rules(policy=policy())
        async with SqliteStore.open(tmp_path / "home", SystemClock(), decode=lift) as store:
            saves = Saves(store)
            folds = SessionFolds(store.log, saves, every=10)
            async with SessionRegistry(store, SystemClock(), lambda: rules, folds=folds) as house:
                session = await open_session(house, workspace)
                for number in range(20):
                    await house.send(session, message(number))
                assert saves.saved == []
            end = store.log.head(session_stream(session))
            assert saves.saved == [end]
            # Little has happened since.
            async with SessionRegistry(store, SystemClock(), lambda: rules, folds=folds) as house:
                await house.send(session, message(20))
            assert saves.saved == [end]
            async with SessionRegistry(store, SystemClock(), lambda: rules, folds=folds) as house:
                for number in range(21, 40):
                    await house.send(session, message(number))
                assert house.look_at(session) == fold(map(lift, store.log.read(session_stream(session))))
            assert saves.saved == [end, store.log.head(session_stream(session))]
            await house_deletes(store, folds, session)

    async def house_deletes(store: SqliteStore, folds: SessionFolds, session: str) -> None:
        rules = Rules(policy=policy())
        place = tmp_path / "home" / "cache" / session
        assert place.exists()
        async with SessionRegistry(store, SystemClock(), lambda: rules, folds=folds) as house:
            await house.delete(session, ANN)  # pyright: ignore[reportArgumentType] - ids are strings
            assert not place.exists()
        assert not place.exists()

    run(work())


def test_a_long_log_without_a_snapshot_gets_one_when_it_is_taken_up(tmp_path: Path, workspace: Path) -> None:
    async def work() -> None:
        rules = Rules(policy=policy())
        async with SqliteStore.open(tmp_path / "home", SystemClock(), decode=lift) as store:
            async with SessionRegistry(store, SystemClock(), lambda: rules) as house:
                session = await open_session(house, workspace)
                for number in range(20):
                    await house.send(session, message(number))
            saves = Saves(store)
            folds = SessionFolds(store.log, saves, every=10)
            async with SessionRegistry(store, SystemClock(), lambda: rules, folds=folds) as house, house.hold(session):
                await eventually((tmp_path / "home" / "cache" / session).exists)
            assert set(saves.saved) == {store.log.head(session_stream(session))}

    run(work())


class Failing(Saves):
    """Snapshots that cannot be made, for a reason that nobody thought of."""

    def save(self, snapshot: FoldSnapshot) -> bool:
        raise RuntimeError("can't start new thread")


def test_a_snapshot_that_cannot_be_made_keeps_nobody_from_going_on(tmp_path: Path, workspace: Path) -> None:
    async def work() -> None:
        rules = Rules(policy=policy())
        async with SqliteStore.open(tmp_path / "home", SystemClock(), decode=lift) as store:
            folds = SessionFolds(store.log, Failing(store), every=1)
            async with SessionRegistry(store, SystemClock(), lambda: rules, folds=folds) as house:
                session = await open_session(house, workspace)
            async with SessionRegistry(store, SystemClock(), lambda: rules, folds=folds) as house:
                await house.send(session, message(1))
                assert house.look_at(session).totals.messages == 1

    run(work())


def test_a_store_can_be_opened_without_snapshots(tmp_path: Path) -> None:
    with closing(SqliteStore.open(tmp_path / "home", StillClock(), with_snapshots=False)) as store:
        assert store.snapshots is None
