"""Detects a log that has lost entries when it is opened, by a note of the last commit that is kept outside the database."""

import contextlib
import hmac
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

from curtainwall.model import Broken, SessionId, record, session_stream
from curtainwall.store.audit import chain
from curtainwall.store.audit.trail import last_audited
from curtainwall.store.home import StorePaths, private_file, read_audit_key

_SIZE: Final = 160
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class LastCommit(NamedTuple):
    """The content of the note: how many entries were ever written, and during which boot of the machine."""

    written: int
    boot: str


class CommitNote:
    """The number of the last entry ever written, noted outside the database after each commit.

    It is not synced. It survives the death of any process, and after a power failure it can be older than the log, but never newer.
    """

    def __init__(self, path: Path, key: bytes) -> None:
        self._path = path
        self._key = key
        self._boot = _boot()
        self._descriptor: int | None = None

    def read(self) -> LastCommit | None:
        """Return the note, or None if there is none or it is not ours."""
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
        """Tell whether the machine has been running since. Only then can no power failure have lost anything that was written."""
        return noted.boot == self._boot != ""

    def write(self, written: int) -> None:
        """Record how many entries were ever written. If that fails, the older note remains, which does no harm."""
        text = f"{written} {self._boot}"
        with contextlib.suppress(OSError):
            if self._descriptor is None:
                self._descriptor = private_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK)
            os.pwrite(self._descriptor, f"{text} {self._mac(text)}".ljust(_SIZE - 1).encode() + b"\n", 0)

    def close(self) -> None:
        """Close the file."""
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
"""The extension name under which the house log records a damaged database that was set aside."""


@record
class Loss:
    """The known losses of a log."""

    database: Path
    is_gone: bool = False
    """Whether the whole database is missing or empty."""
    entries: int = 0
    """How many of the entries that were written are missing."""
    sessions: tuple[SessionId, ...] = ()
    """Sessions whose audit files are ahead of the log."""

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
    """Return the loss if a home no longer has the database it once had, or None."""
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

    All audit files are compared if the note is not enough: once per boot of the machine, and if there is no note.
    """
    # INVARIANT: the note is read first. If others write meanwhile, the log is ahead of the note, never behind it.
    noted = note.read()
    written = _written(db)
    entries = max(0, noted.written - written) if noted is not None and written is not None else 0
    if with_audit_files is None:
        with_audit_files = noted is None or not note.is_of_this_boot(noted)
    sessions = tuple(sorted(_sessions_ahead(db, home))) if with_audit_files or entries else ()
    return Loss(home.database, entries=entries, sessions=sessions) if entries or sessions else None


def require_whole(db: sqlite3.Connection, home: StorePaths, note: CommitNote) -> None:
    """Raise `Broken` if the log has lost entries. Once all audit files were compared, that is not repeated during this boot."""
    loss = loss_in(db, home, note)
    if loss is not None:
        raise Broken(str(loss))
    noted = note.read()
    if (noted is None or not note.is_of_this_boot(noted)) and (written := _written(db)):
        note.write(written)


def _written(db: sqlite3.Connection) -> int | None:
    """Return how many entries were ever written, or None if the seal is missing, which the next write reports."""
    row = db.execute("SELECT written FROM seal").fetchone()
    return None if row is None else row[0]


def _sessions_ahead(db: sqlite3.Connection, home: StorePaths) -> Iterator[SessionId]:
    heads = {head.stream: head.seq for head in chain.heads(db)}
    accounted_for = {*chain.deleted(db), *chain.named_in(db, RESCUE, "lost")}
    for session, audited in _audited(home):
        stream = session_stream(session)
        if audited > heads.get(stream, 0) and stream not in accounted_for:
            yield session


def _audited(home: StorePaths) -> Iterator[tuple[SessionId, int]]:
    """Yield each session whose audit file has at least one whole line, and the last entry recorded in it."""
    for path in (home.root / "sessions").glob("*/audit.jsonl"):
        if seq := last_audited(path):
            yield SessionId(path.parent.name), seq
