"""What ran later by itself in a project before it was given for writing, kept on the disk until somebody has looked at it again.

Whoever finds the record of a process that died can still tell what came since.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from curtainwall.host.files.beneath import move_entry
from curtainwall.host.files.later import Later, likeness_of, renamed
from curtainwall.host.files.locks import FileLock, lock_file
from curtainwall.model import CommandRefused, HeldFile


@dataclass(frozen=True, slots=True)
class WatchRecord:
    """What was in a project, and which of it was kept by mounts."""

    root: str
    before: Later
    fixed: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Keep this, durably."""
        draft = path.with_suffix(".new")
        draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with draft.open("w", encoding="ascii") as file:
            json.dump({"root": self.root, "before": asdict(self.before), "fixed": self.fixed}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    @classmethod
    def read(cls, path: Path) -> "WatchRecord":
        """Return what was kept; a record of an earlier version says less of which files there were."""
        kept = json.loads(path.read_text(encoding="ascii"))
        before = kept["before"]
        later = Later(
            before["found"],
            {path: tuple(numbers) for path, numbers in before.get("ways", {}).items()},
            tuple(before["git"]),
            before.get("configs", {}),
            before.get("links", {}),
            tuple(before.get("linked", ())),
        )
        return cls(kept["root"], later, tuple(kept["fixed"]))


class HeldRecord:
    """A record that this process answers for: while it lives, nobody else takes the record up."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        self._path = path
        self._lock = lock

    def remove(self) -> None:
        """Remove the record, because somebody has looked at the project again."""
        self._path.unlink(missing_ok=True)
        self._path.with_suffix(".lock").unlink(missing_ok=True)
        self._lock.release()


class WatchRecords:
    """The records of one home, each with a lock that the kernel takes from a process that dies."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, record: WatchRecord) -> HeldRecord:
        """Write a record down before a project is given for writing; raise `OSError`."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256(os.fsencode(record.root)).hexdigest()[:16]
        path = self._directory / f"{digest}-{uuid.uuid4().hex}.json"
        lock = lock_file(path.with_suffix(".lock"))
        assert lock is not None
        held = HeldRecord(path, lock)
        try:
            record.write(path)
        except BaseException:
            held.remove()
            raise
        return held

    def abandoned(self, root: str) -> Iterator[tuple[WatchRecord, HeldRecord]]:
        """Yield the records of dead processes about a directory, one above it or one in it; whoever deals with one has to remove it."""
        for path in sorted(self._directory.glob("*.json")):
            lock = lock_file(path.with_suffix(".lock"))
            if lock is None:
                continue
            try:
                record = WatchRecord.read(path)
            except FileNotFoundError:
                # Its process has looked at the project just now.
                HeldRecord(path, lock).remove()
                continue
            if os.path.commonpath((root, record.root)) in (root, record.root):
                yield record, HeldRecord(path, lock)
            else:
                lock.release()


def held_files_of(held: tuple[tuple[str, str | None], ...], before: Later) -> tuple[HeldFile, ...]:
    """Return what was set aside, with what each is like now: its new name is no name that anybody is kept from writing to."""
    return tuple(_held_file(path, aside, before) for path, aside in held)


def _held_file(path: str, aside: str | None, before: Later) -> HeldFile:
    if aside is None:
        return HeldFile(path=_storable(path), aside=None)
    is_replaced = path in before.configs and os.path.lexists(path)
    return HeldFile(path=_storable(path), aside=_storable(aside), likeness=likeness_of(aside) or "", is_replaced=is_replaced)


def put_back(file: HeldFile) -> str | None:
    """Give a file its own name again, and return where what stood there instead is now; raise `CommandRefused`.

    INVARIANT: only what was set aside comes back. Whatever changed since, an agent may have written.
    """
    if file.aside is None:
        raise CommandRefused(f"`{file.path}` could not be set aside, so it is still there")
    now = likeness_of(file.aside)
    if now is None:
        raise CommandRefused(f"`{file.aside}` is not there any more")
    if now != file.likeness:
        raise CommandRefused(f"`{file.aside}` was changed since it was set aside; look at it, and rename it yourself")
    instead = None
    if os.path.lexists(file.path):
        if not file.is_replaced:
            raise CommandRefused(f"there is another `{file.path}` by now; look at both, and choose yourself")
        instead = renamed(file.path)
    try:
        move_entry(file.aside, file.path)
    except (OSError, ValueError) as fault:
        why = (getattr(fault, "strerror", None) or str(fault)).lower()
        raise CommandRefused(f"`{file.aside}` cannot be put back: {why}") from None
    return instead


def _storable(path: str) -> str:
    """Return a path as the log can hold it; one with bytes that are no text is named, and cannot be put back by us."""
    return path.encode("utf-8", "backslashreplace").decode()
