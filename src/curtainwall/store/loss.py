"""A log that has lost entries: what is noted outside the database, and how a loss is noticed when it is opened."""

import contextlib
import hmac
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

from curtainwall.model import Broken, SessionId, session_stream
from curtainwall.store.audit import chain
from curtainwall.store.audit.trail import last_audited
from curtainwall.store.home import StorePaths, private_file, read_audit_key

_SIZE: Final = 160
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class LastCommit(NamedTuple):
    """What the note says: how many entries were ever written, and in which boot of the machine that was."""

    written: int
    boot: str


class CommitNote:
    """The number of the last entry ever written, noted outside the database after each commit.

    It is not synced: it outlives any process, and after a power failure it is at most older than the log, never newer.
    """

    def __init__(self, path: Path, key: bytes) -> None:
        self._path = path
        self._key = key
        self._boot = _boot()
        self._descriptor: int | None = None

    def read(self) -> LastCommit | None:
        """Return what was noted, or None where nothing was, or it is not ours."""
        try:
            descriptor = private_file(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            text, _, mac = os.read(descriptor, _SIZE).decode("ascii", "replace").rstrip().rpartition(" ")
        except OSError:
            return None
        finally:
            os.close(descriptor)
        written, _, boot = text.partition(" ")
        is_ours = hmac.compare_digest(mac.encode(), self._mac(text).encode())
        return LastCommit(int(written), boot) if is_ours and written.isdecimal() else None

    def is_of_this_boot(self, noted: LastCommit) -> bool:
        """Tell whether the machine has run since: only then nothing that was written can have been lost by a power failure."""
        return noted.boot == self._boot != ""

    def write(self, written: int) -> None:
        """Note how many entries were ever written; where that cannot be done, the note stays older, which does no harm."""
        text = f"{written} {self._boot}"
        with contextlib.suppress(OSError):
            if self._descriptor is None:
                self._descriptor = private_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK)
            os.pwrite(self._descriptor, f"{text} {self._mac(text)}".ljust(_SIZE - 1).encode() + b"\n", 0)

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mac(self, text: str) -> str:
        return hmac.digest(self._key, f"commit {text}".encode(), "sha256").hex()


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


RESCUE: Final = "rescue"
"""The name under which the house's log tells of a damaged database that was set aside."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What is known to be gone from a log."""

    database: Path
    is_gone: bool = False
    """Whether the whole database is missing or empty."""
    entries: int = 0
    """How many entries fewer there are than were written."""
    sessions: tuple[SessionId, ...] = ()
    """Sessions whose audit files tell of more than the log does."""

    def __str__(self) -> str:
        if self.is_gone:
            what = f"the log is gone: `{self.database}` is missing or empty, and what it held was written"
        else:
            parts = [f"{self.entries} entries that were written are not in `{self.database}`"] if self.entries else []
            names = ", ".join(self.sessions[:3]) + (f" and {len(self.sessions) - 3} more" if len(self.sessions) > 3 else "")
            parts += [f"the audit files of {names} tell of more than the log does"] if self.sessions else []
            what = f"the log has lost entries: {'; '.join(parts)}"
        remedy = "put back the newest copy of the database with its `-wal` file, or go on without them with `curtainwall audit accept-loss`"
        return f"{what}; {remedy}"


def loss_of_database(root: Path) -> Loss | None:
    """Return what is lost where a home has no database although it had one, or None."""
    home = StorePaths(root.absolute())
    if home.database.exists() and home.database.stat().st_size:
        return None
    try:
        key = read_audit_key(home.audit_key)
    except Broken:
        key = b""
    sessions = tuple(sorted(session for session, _ in _audited(home)))
    noted = CommitNote(home.last_commit, key).read() if key else None
    return Loss(home.database, is_gone=True, sessions=sessions) if sessions or (noted is not None and noted.written) else None


def loss_in(db: sqlite3.Connection, home: StorePaths, note: CommitNote, *, with_audit_files: bool | None = None) -> Loss | None:
    """Return what an open log has lost, or None.

    Every audit file is compared where the note says too little: once in each boot of the machine, and where there is none.
    """
    # INVARIANT: the note is read first. Others may write meanwhile, and the log is then ahead of what was read, never behind.
    noted = note.read()
    written = _written(db)
    entries = max(0, noted.written - written) if noted is not None and written is not None else 0
    if with_audit_files is None:
        with_audit_files = noted is None or not note.is_of_this_boot(noted)
    sessions = tuple(sorted(_sessions_ahead(db, home))) if with_audit_files or entries else ()
    return Loss(home.database, entries=entries, sessions=sessions) if entries or sessions else None


def require_whole(db: sqlite3.Connection, home: StorePaths, note: CommitNote) -> None:
    """Raise `Broken` where the log has lost entries; where every audit file was compared, that need not be done again in this boot."""
    loss = loss_in(db, home, note)
    if loss is not None:
        raise Broken(str(loss))
    noted = note.read()
    if (noted is None or not note.is_of_this_boot(noted)) and (written := _written(db)):
        note.write(written)


def _written(db: sqlite3.Connection) -> int | None:
    """Return how many entries were ever written; None where the seal is missing, which whoever writes next is told."""
    row = db.execute("SELECT written FROM seal").fetchone()
    return None if row is None else row[0]


def _sessions_ahead(db: sqlite3.Connection, home: StorePaths) -> Iterator[SessionId]:
    heads = {head.stream: head.seq for head in chain.heads(db)}
    known = {*chain.deleted(db), *chain.named_in(db, RESCUE, "lost")}
    for session, audited in _audited(home):
        stream = session_stream(session)
        if audited > heads.get(stream, 0) and stream not in known:
            yield session


def _audited(home: StorePaths) -> Iterator[tuple[SessionId, int]]:
    """Yield the sessions that have audit files with at least one whole line, and the last entry that each tells of."""
    for path in (home.root / "sessions").glob("*/audit.jsonl"):
        if seq := last_audited(path):
            yield SessionId(path.parent.name), seq
