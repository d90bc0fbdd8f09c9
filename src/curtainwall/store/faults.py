"""Turns errors from SQLite and the file system into messages that say what to do."""

import errno
import sqlite3
from pathlib import Path

from curtainwall.model import Broken, CurtainwallError, TryLater

_PASSES: dict[int, str] = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space for `{path}`",
    sqlite3.SQLITE_BUSY: "the database `{path}` is locked by another process: end that process or wait for it",
    sqlite3.SQLITE_LOCKED: "the database `{path}` is locked by another process: end that process or wait for it",
    sqlite3.SQLITE_PROTOCOL: "the database `{path}` is locked by another process: end that process or wait for it",
    sqlite3.SQLITE_READONLY: "the database `{path}` cannot be written to: make the file and its disk writable",
    sqlite3.SQLITE_CANTOPEN: "the database `{path}` cannot be opened: see that file and directory are there, writable and yours",
    sqlite3.SQLITE_PERM: "the database `{path}` cannot be opened: see that file and directory are there, writable and yours",
    sqlite3.SQLITE_IOERR: "the disk did not take or give the data of `{path}`: see whether it is full, limited or failing",
    sqlite3.SQLITE_NOMEM: "there is no memory left to use the database `{path}`",
    sqlite3.SQLITE_INTERRUPT: "using the database `{path}` was interrupted",
}
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def explain(error: sqlite3.Error, path: Path) -> TryLater | Broken:
    """Return the error to raise for a failed database operation: a temporary one, or damage."""
    code = int(getattr(error, "sqlite_errorcode", -1)) & 0xFF
    if (advice := _PASSES.get(code)) is not None:
        return TryLater(f"nothing was written: {advice.format(path=path)} ({error})")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return TryLater("the store is closed: open it again")
    remedy = "put back a copy that `audit verify` passes, or save what is whole with `audit rescue`"
    return Broken(f"the database `{path}` is damaged: {remedy}; nothing was written ({error})")


def unsure(fault: CurtainwallError) -> CurtainwallError:
    """Return the error for a write that was handed to another process, which may have completed it."""
    why = str(fault).replace("nothing was written: ", "").replace("; nothing was written", "")
    kind = Broken if isinstance(fault, Broken) else TryLater
    return kind(f"it is not known whether this was written: look before you repeat it; {why}")


def explain_file(error: OSError, path: Path) -> TryLater:
    """Return the error to raise for a failed file operation."""
    if error.errno in _NO_SPACE:
        return TryLater(f"nothing was written: the disk is full: free some space for `{path}` ({error.strerror})")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return TryLater(f"nothing was written: `{path}` cannot be written to: make it and its disk writable ({error.strerror})")
    return TryLater(f"nothing was written: `{path}` cannot be used: {error.strerror}")
