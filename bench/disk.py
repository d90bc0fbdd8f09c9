"""A place to measure in: a fresh directory on a real disk, gone afterwards."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What is never on a disk: a commit there costs nothing and proves nothing.
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})


class NotADisk(Exception):
    """The directory lies in memory; name another one in BENCH_DIR."""


def file_system_of(path: Path) -> str:
    """Return the type of the file system that a path lies on, as the kernel's mount table has it."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    real, best = str(path.resolve()), ("", "unknown")
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        fields, point = before.split(), before.split()[4].replace("\\040", " ")
        above = point in ("/", real) or real.startswith(f"{point}/")
        # The longest mount point above the path, and of several mounts there the one with the path's own device.
        if above and (len(point) > len(best[0]) or (len(point) == len(best[0]) and fields[2] == wanted)):
            best = point, after.split()[0]
    return best[1]


@contextmanager
def fresh_directory() -> Generator[Path]:
    """Lend a directory in BENCH_DIR, or in the repository's `build/`; refuse one that lies in memory."""
    chosen = os.environ.get("BENCH_DIR")
    above = Path(chosen) if chosen else ROOT / "build"
    above.mkdir(parents=True, exist_ok=True)
    kind = file_system_of(above)
    if kind in _IN_MEMORY:
        raise NotADisk(f"`{above}` lies on {kind}, where a commit costs nothing: set BENCH_DIR to a directory on a disk")
    place = Path(tempfile.mkdtemp(prefix="bench-", dir=above)).resolve()
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def settled_size(database: Path) -> int:
    """Fold a database's write-ahead log into it and return the bytes that it takes on disk then."""
    db = sqlite3.connect(database)
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.close()
    beside = (database, database.with_name(f"{database.name}-wal"))
    return sum(path.stat().st_size for path in beside if path.exists())
