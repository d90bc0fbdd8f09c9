"""A skill's folder, read in one go by descriptor: its files and their digest."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from curtainwall.host import LinkInTheWay, open_beneath
from curtainwall.model import Digest, canonical_json, record

MAIN: Final = "SKILL.md"
_MOST_FILES: Final = 200
_MOST_LISTED: Final = 4_096
MOST_BYTES: Final = 8 * 1024 * 1024
BIGGEST_SHOWN: Final = 64 * 1024
_DEEPEST: Final = 8
_TOP: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DIRECTORY: Final = _TOP | os.O_NOFOLLOW
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Unusable(ValueError):
    """A folder that cannot be a skill; the message says why, and `read` how many bytes it took to find out."""

    read: int = 0


@record
class SkillFolder:
    """Every file below a folder as it was at one look, by its relative path."""

    files: Mapping[str, bytes]

    @property
    def digest(self) -> Digest:
        """Return the digest of all names and contents."""
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()}
        return Digest(hashlib.sha256(canonical_json({**digests})).hexdigest())

    @property
    def size(self) -> int:
        """Return how many bytes it has."""
        return sum(map(len, self.files.values()))

    @property
    def main(self) -> str:
        """Return the text of SKILL.md."""
        return self.files[MAIN].decode()


def folders_in(root: str, most: int) -> Iterator[str]:
    """Return the folders below a directory that have a SKILL.md, by name; where the directory is missing or a link, none."""
    try:
        at = open_beneath(root, _TOP)
    except OSError:
        return
    try:
        names = sorted(_some_names(at, _MOST_LISTED))[:most]
        for name in names:
            if _is_directory(at, name) and _is_there(at, f"{name}/{MAIN}"):
                yield f"{root}/{name}"
    finally:
        os.close(at)


def read_folder(path: str, most: int = MOST_BYTES) -> SkillFolder:
    """Return everything in a folder; raise `Unusable` for links, devices, and more than a skill should have, or more than `most` bytes."""
    try:
        top = open_beneath(path, _TOP)
    except LinkInTheWay:
        raise Unusable("it is reached by a link; copy it to where the link is") from None
    except OSError as fault:
        raise Unusable(f"it cannot be read: {(fault.strerror or '').lower()}") from None
    reading = _Reading(min(most, MOST_BYTES))
    files = reading.files
    try:
        _read(top, "", reading, 0)
        _require_main(files.get(MAIN))
    except OSError as fault:
        raise Unusable(f"it cannot be read: {(fault.strerror or '').lower()}") from None
    except Unusable as fault:
        fault.read = sum(map(len, files.values()))
        raise
    finally:
        os.close(top)
    return SkillFolder(dict(sorted(files.items())))


def _require_main(main: bytes | None) -> None:
    if main is None or len(main) > BIGGEST_SHOWN:
        raise Unusable(f"it has no {MAIN}" if main is None else f"its {MAIN} is bigger than {BIGGEST_SHOWN // 1024} KiB")
    try:
        main.decode()
    except UnicodeDecodeError:
        raise Unusable(f"its {MAIN} is not UTF-8") from None


@dataclass(slots=True)
class _Reading:
    """A folder being read: what may be read in all, and what was found so far."""

    most: int
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    directories: int = 0

    def require_room(self) -> None:
        """Raise `Unusable` where nothing more may be found; an empty directory takes as long to look at as a file."""
        if len(self.files) + self.directories >= _MOST_FILES:
            raise Unusable(f"it has more than {_MOST_FILES} files and directories")


def _read(directory: int, above: str, reading: _Reading, depth: int) -> None:
    if depth > _DEEPEST:
        raise Unusable(f"it is nested deeper than {_DEEPEST} directories")
    names = _some_names(directory, _MOST_FILES + 1)
    if len(names) > _MOST_FILES:
        raise Unusable(f"it has more than {_MOST_FILES} files and directories")
    for name in sorted(names):
        reading.require_room()
        if not name.isprintable():
            raise Unusable("a name in it has letters that cannot be shown")
        kind = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        if stat.S_ISDIR(kind):
            reading.directories += 1
            inner = os.open(name, _DIRECTORY, dir_fd=directory)
            try:
                _read(inner, f"{above}{name}/", reading, depth + 1)
            finally:
                os.close(inner)
        elif stat.S_ISREG(kind):
            reading.files[f"{above}{name}"] = _content(directory, name, reading.most - sum(map(len, reading.files.values())))
        else:
            raise Unusable(f"`{above}{name}` in it is a link or no file; copy what it leads to")


def _some_names(directory: int, most: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, most)]


def _content(directory: int, name: str, room: int) -> bytes:
    descriptor = os.open(name, _FILE, dir_fd=directory)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Unusable(f"`{name}` in it is no file")
    with os.fdopen(descriptor, "rb") as file:
        # One that is too big need not be read to find that out.
        content = file.read(room + 1) if status.st_size <= room else None
    if content is None or len(content) > room:
        raise Unusable(f"it is bigger than {MOST_BYTES // 1024 // 1024} MiB, or all of its kind together are too big")
    return content


def _is_directory(at: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=True).st_mode)
    except OSError:
        return False


def _is_there(at: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError:
        return False
    return True
