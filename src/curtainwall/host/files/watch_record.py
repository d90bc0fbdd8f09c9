"""Records on disk of what ran later in a project before a command could write to it, kept until the project was checked again.

If a process dies, another one can still tell from its record what has appeared since.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from curtainwall.host.files.beneath import move_entry
from curtainwall.host.files.later import Later, likeness_of, rename_aside
from curtainwall.host.files.locks import FileLock, lock_file
from curtainwall.model import CommandRefused, HeldFile, record


@record
class WatchRecord:
    """The files of a project that run later, and those that mounts protected."""

    root: str
    before: Later
    fixed: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write the record to disk durably."""
        draft, before = path.with_suffix(".new"), asdict(self.before)
        # The names in the file are those of earlier versions.
        before = {"found": before.pop("likenesses"), "ways": before.pop("identities"), **before}
        draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with draft.open("w", encoding="ascii") as file:
            json.dump({"root": self.root, "before": before, "fixed": self.fixed}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    @classmethod
    def read(cls, path: Path) -> "WatchRecord":
        """Read a record; one of an earlier version knows less about which files there were."""
        stored = json.loads(path.read_text(encoding="ascii"))
        before = stored["before"]
        later = Later(
            before["found"],
            {path: tuple(numbers) for path, numbers in before.get("ways", {}).items()},
            tuple(before["git"]),
            before.get("configs", {}),
            before.get("links", {}),
            tuple(before.get("linked", ())),
        )
        return cls(stored["root"], later, tuple(stored["fixed"]))


class HeldRecord:
    """A record that this process is responsible for: while the process lives, no other takes the record over."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        self._path = path
        self._lock = lock

    def remove(self) -> None:
        """Remove the record, because the project was checked again."""
        self._path.unlink(missing_ok=True)
        self._path.with_suffix(".lock").unlink(missing_ok=True)
        self._lock.release()


class WatchRecords:
    """The records of one home, each with a lock that the kernel releases when its process dies."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, record: WatchRecord) -> HeldRecord:
        """Write a record before a command may write to the project; raise `OSError`."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256(os.fsencode(record.root)).hexdigest()[:16]
        path = self._directory / f"{digest}-{uuid.uuid4().hex}.json"
        lock = lock_file(path.with_suffix(".lock"))
        assert lock is not None
        held_record = HeldRecord(path, lock)
        try:
            record.write(path)
        except BaseException:
            held_record.remove()
            raise
        return held_record

    def abandoned(self, root: str) -> Iterator[tuple[WatchRecord, HeldRecord]]:
        """Yield the records of dead processes about a directory, one above it or one in it; the caller removes each one it handles."""
        for path in sorted(self._directory.glob("*.json")):
            lock = lock_file(path.with_suffix(".lock"))
            if lock is None:
                continue
            try:
                record = WatchRecord.read(path)
            except FileNotFoundError:
                # Its process has just checked the project.
                HeldRecord(path, lock).remove()
                continue
            if os.path.commonpath((root, record.root)) in (root, record.root):
                yield record, HeldRecord(path, lock)
            else:
                lock.release()


def held_files_of(held: tuple[tuple[str, str | None], ...], before: Later) -> tuple[HeldFile, ...]:
    """Return what was set aside, each with its likeness now: nothing keeps others from writing to its new name."""
    return tuple(_held_file(path, aside, before) for path, aside in held)


def _held_file(path: str, aside: str | None, before: Later) -> HeldFile:
    if aside is None:
        return HeldFile(path=_storable(path), aside=None)
    is_replaced = path in before.configs and os.path.lexists(path)
    return HeldFile(path=_storable(path), aside=_storable(aside), likeness=likeness_of(aside) or "", is_replaced=is_replaced)


def put_back(file: HeldFile) -> str | None:
    """Give a file its name back, and return the new path of the file that had it meanwhile; raise `CommandRefused`.

    INVARIANT: only what was set aside comes back. If it changed since, an agent may have written it.
    """
    if file.aside is None:
        raise CommandRefused(f"`{file.path}` could not be set aside, so it is still there")
    now = likeness_of(file.aside)
    if now is None:
        raise CommandRefused(f"`{file.aside}` is not there any more")
    if now != file.likeness:
        raise CommandRefused(f"`{file.aside}` was changed since it was set aside; look at it, and rename it yourself")
    displaced = None
    if os.path.lexists(file.path):
        if not file.is_replaced:
            raise CommandRefused(f"there is another `{file.path}` by now; look at both, and choose yourself")
        displaced = rename_aside(file.path)
    try:
        move_entry(file.aside, file.path)
    except (OSError, ValueError) as fault:
        reason = (getattr(fault, "strerror", None) or str(fault)).lower()
        raise CommandRefused(f"`{file.aside}` cannot be put back: {reason}") from None
    return displaced


def _storable(path: str) -> str:
    """Return a path as the log can hold it; one with bytes that are not UTF-8 can be shown, but we cannot put it back."""
    return path.encode("utf-8", "backslashreplace").decode()
