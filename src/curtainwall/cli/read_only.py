"""Looking at a home whose disk takes nothing, because it is read-only or full: at a copy of its log, and nothing of the home is changed."""

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

# What SQLite makes beside a database that it opens.
_NEEDED = 64 * 1024


@contextmanager
def open_to_look(home: Home, *, only_if_whole: bool = True) -> Generator[Stores]:
    """Open the store to look things up, as it is, or where its disk takes nothing, a copy of it."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(open_store(home, only_if_whole=only_if_whole))
        except CurtainwallError:
            if not _takes_nothing(home.root):
                raise
            note(f"`{home.root}` is on a disk that is read-only or full: this is told from a copy of its log")
            copy = _copied(home, Path(stack.enter_context(TemporaryDirectory(prefix="curtainwall-"))))
            store = stack.enter_context(open_store(copy, only_if_whole=False))
        yield store


def _takes_nothing(root: Path) -> bool:
    disk = os.statvfs(root)
    return _is_read_only(root) or disk.f_bavail * disk.f_frsize < _NEEDED


def _is_read_only(root: Path) -> bool:
    return bool(os.statvfs(root).f_flag & os.ST_RDONLY)


def _copied(home: Home, place: Path) -> Home:
    copy = Home(place)
    # The database before what was written since: the other way round something could be in neither.
    for file in (home.database, Path(f"{home.database}-wal"), home.root / "keys" / "audit.key"):
        if file.exists():
            target = place / file.relative_to(home.root)
            target.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(file, target)
            target.chmod(0o600)
    # Who works is seen by locks, and nobody can hold one where nothing can be written.
    for name in ("blobs", "sessions") if _is_read_only(home.root) else ("blobs", "sessions", "run"):
        (place / name).symlink_to(home.root / name)
    return copy
