"""Reading a home on a read-only or full disk: from a copy of its log, without changing the home."""

import os
import shutil
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from curtainwall.cli.screen import note
from curtainwall.compose.store import open_store
from curtainwall.host.home import Home
from curtainwall.model import CurtainwallError
from curtainwall.runtime import Stores

# The space that SQLite needs next to a database that it opens.
_NEEDED = 64 * 1024


@contextmanager
def open_for_reading(home: Home, *, only_if_whole: bool = True) -> Generator[Stores]:
    """Open the store for reading, or a copy of it if its disk is read-only or full."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(open_store(home, only_if_whole=only_if_whole))
        except CurtainwallError:
            if not _is_unwritable(home.root):
                raise
            note(f"`{home.root}` is on a disk that is read-only or full: this is told from a copy of its log")
            copy = _copied(home, Path(stack.enter_context(TemporaryDirectory(prefix="curtainwall-"))))
            store = stack.enter_context(open_store(copy, only_if_whole=False))
        yield store


def _is_unwritable(root: Path) -> bool:
    disk = os.statvfs(root)
    return _is_read_only(root) or disk.f_bavail * disk.f_frsize < _NEEDED


def _is_read_only(root: Path) -> bool:
    return bool(os.statvfs(root).f_flag & os.ST_RDONLY)


def _copied(home: Home, root: Path) -> Home:
    copy = Home(root)
    # Copy the database before its journal; in the other order, some entries could be in neither copy.
    for file in (home.database, Path(f"{home.database}-wal"), home.root / "keys" / "audit.key"):
        if file.exists():
            target = root / file.relative_to(home.root)
            target.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(file, target)
            target.chmod(0o600)
    # Locks show which processes work, but nobody can hold one on a read-only disk.
    for name in ("blobs", "sessions") if _is_read_only(home.root) else ("blobs", "sessions", "run"):
        (root / name).symlink_to(home.root / name)
    return copy
