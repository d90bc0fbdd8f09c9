"""Files of a workspace, looked at: opened once and read whole; or, where a link leads out of it to a program, where that leads."""

import hashlib
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from curtainwall.facts import is_beneath
from curtainwall.model import Broken

_BIGGEST_PROGRAM: Final = 64 * 1024 * 1024
_MOST_LINKS: Final = 40
_BINARY: Final = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class Looked:
    """A file as it was when it was looked at: opened once, and all of this is of what was open.

    `place` is where in the workspace it really lies, `leads_to` the program outside that a link leads to; of that one nothing is read.
    """

    content: bytes
    is_executable: bool
    has_one_name: bool
    place: str
    leads_to: str | None = None

    @property
    def digest(self) -> str:
        """Return what a pin says of it: its content and whether it may be executed, or where it leads."""
        if self.leads_to is not None:
            return f"leads to {self.leads_to}"
        return hashlib.sha256(self.content).hexdigest() + ("-x" if self.is_executable else "")


def path_in(workspace: str, word: str) -> str | None:
    """Return the path in the workspace that a word names there, be it by another way in; None where it names none."""
    if not word or "\0" in word:
        return None
    path = os.path.normpath(os.path.join(workspace, word))
    if not is_beneath(path, workspace):
        path = os.path.realpath(path)
    return path if path != workspace and is_beneath(path, workspace) else None


def look_at(path: str, workspace: str) -> Looked | None:
    """Return a file of a workspace as it is now, or None where there is no such file; raise `Broken` where it cannot be read."""
    outside = way_out(path, workspace)
    if outside is not None and (about := _binary(outside)) is not None:
        return Looked(b"", bool(about.st_mode & 0o111), about.st_nlink == 1, path, outside)
    found, real = look(Path(path), _BIGGEST_PROGRAM), os.path.realpath(path)
    return found if found is None or not is_beneath(real, workspace) else replace(found, place=real)


def way_out(path: str, workspace: str) -> str | None:
    """Return the first place after which the links at a path stay outside the workspace, under the name that it has there; or None."""
    outside: str | None = None
    for _ in range(_MOST_LINKS):
        directory = os.path.realpath(os.path.dirname(path))
        path = os.path.join(directory, os.path.basename(path))
        outside = None if is_beneath(path, workspace) else outside or path
        try:
            path = os.path.join(directory, os.readlink(path))
        except OSError:
            return outside
    return None


def look(path: Path, most: int) -> Looked | None:
    """Return a regular file as it is now, or None where there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as fault:
        raise Broken(f"`{path}` cannot be read: {(fault.strerror or '').lower()}") from None
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Broken(f"`{path}` is bigger than {most} bytes")
    return Looked(content, bool(about.st_mode & 0o111), about.st_nlink == 1, str(path))


def _binary(path: str) -> os.stat_result | None:
    """Return what is told of a file that the kernel runs by itself, without a script's interpreter; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        return about if stat.S_ISREG(about.st_mode) and os.read(descriptor, len(_BINARY)) == _BINARY else None
    finally:
        os.close(descriptor)
