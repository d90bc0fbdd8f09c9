"""The layout of the home directory, and the file functions that keep it private, whatever the umask says."""

import contextlib
import os
import secrets
import stat
from pathlib import Path

from curtainwall.model import Broken, SessionId, record

KEY_SIZE = 32

ASIDE = ".damaged-"
"""Separates the name of a database that was set aside from the time at which that happened."""

CUT_OFF = "setting it aside broke off"


@record
class StorePaths:
    """The places of the store below `CURTAINWALL_HOME`."""

    root: Path

    @property
    def database(self) -> Path:
        """Return the file that holds the log."""
        return self.root / "curtainwall.db"

    @property
    def blobs(self) -> Path:
        """Return the directory of big payloads."""
        return self.root / "blobs"

    @property
    def audit_key(self) -> Path:
        """Return the file with the key that heads are sealed with; it stays outside the database."""
        return self.root / "keys" / "audit.key"

    @property
    def last_commit(self) -> Path:
        """Return the file that records, outside the database, how many entries were ever written."""
        return self.root / "keys" / "last-commit"

    @property
    def leases(self) -> Path:
        """Return the file whose bytes the owners of streams lock."""
        return self.root / "run" / "leases"

    @property
    def watch(self) -> Path:
        """Return the directory of the sockets between our own processes."""
        return self.root / "run" / "watch"

    @property
    def cache(self) -> Path:
        """Return the directory of what can be rebuilt from the log; it may be deleted at any time."""
        return self.root / "cache"

    def snapshot(self, session: SessionId) -> Path | None:
        """Return the file for a session's fold, or None if the id cannot be a file name."""
        return self.cache / session if _is_plain_name(session) else None

    def session(self, session: SessionId) -> Path | None:
        """Return a session's directory, or None if the id cannot be a directory name."""
        return self.root / "sessions" / session if _is_plain_name(session) else None

    def prepare(self) -> None:
        """Create missing directories, and make those private that others could read."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for path in (self.root, self.blobs, self.audit_key.parent, self.cache, self.root / "run", self.watch, self.root / "sessions"):
            private_directory(path)


def _is_plain_name(name: str) -> bool:
    return bool(name) and not name.startswith(".") and "/" not in name and "\0" not in name


def name_aside(database: Path) -> Path | None:
    """Return the other name of a database if setting it aside was interrupted, or None."""
    if not database.exists() or database.stat().st_nlink == 1:
        return None
    return next((path for path in database.parent.glob(f"{database.name}{ASIDE}*") if path.samefile(database)), None)


def private_directory(path: Path) -> None:
    """Create a directory with mode 0700, or give an existing one that mode."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if stat.S_IMODE(path.stat().st_mode) != 0o700:
        path.chmod(0o700)


def private_file(path: Path, flags: int) -> int:
    """Open a file with mode 0600 and return its descriptor, which child processes do not inherit."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != 0o600:
            os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all bytes. A nearly full disk may accept only some of them, and then the next write raises."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def write_durably(descriptor: int, content: bytes) -> None:
    """Write all bytes and wait until the disk has them."""
    write_all(descriptor, content)
    os.fsync(descriptor)


def make_audit_key(path: Path) -> None:
    """Create the key if it is missing. If two processes do so at once, both end up with the same key."""
    if path.exists():
        return
    draft = path.with_name(f".{secrets.token_hex(8)}")
    descriptor = private_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_durably(descriptor, secrets.token_bytes(KEY_SIZE))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        sync_directory(path.parent)
    finally:
        os.close(descriptor)
        draft.unlink()


def read_audit_key(path: Path) -> bytes:
    """Return the key; raise `Broken` if it is missing or damaged."""
    try:
        descriptor = private_file(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise Broken(f"the audit key `{path}` is missing: put it back from a backup, the log cannot be extended without it") from None
    try:
        key = os.read(descriptor, KEY_SIZE + 1)
    finally:
        os.close(descriptor)
    if len(key) != KEY_SIZE:
        raise Broken(f"the audit key `{path}` is damaged: put it back from a backup, the log cannot be extended without it")
    return key
