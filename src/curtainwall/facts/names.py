"""Files looked for by their names in a directory and all below it, within bounds: what was found, and why some may have been missed."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

MOST_NAMES: Final = 500_000
"""How many names are looked at before the rest is given up: about half a second's worth."""

_AT_ONCE: Final = 10_000
# A bundle of all the world's certificates is a quarter of this.
_LONGEST_PUBLIC: Final = 1 << 20
# Under these npm keeps what lets it in: `_auth`, `_authToken`, `_password`, `key`.
_IN_NPMRC: Final = (b"_auth", b"_password", b"key")
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Named:
    """The first file of each wanted name, by its name; `missed` says in words why there may be others, or nothing."""

    found: Mapping[str, str]
    missed: str = ""


def find_named(root: str, is_wanted: Callable[[str], bool], most: int = MOST_NAMES) -> Named:
    """Look for files by their paths, without following links."""
    found: dict[str, str] = {}
    waiting, left, missed = [root], most, ""
    while waiting:
        here = waiting.pop()
        try:
            for names in _portions(here):
                # Directories cost as much as files.
                left -= len(names)
                for name, is_directory in names:
                    if is_directory:
                        waiting.append(f"{here}/{name}")
                    elif name not in found and is_wanted(path := f"{here}/{name}"):
                        found[name] = path
                if left < 0:
                    return Named(found, f"it holds more than {most:,} names")
        except (PermissionError, FileNotFoundError, NotADirectoryError):
            # What is closed to us is closed to whoever is let in by us, and what is gone is gone.
            continue
        except OSError as fault:
            missed = f"not all of it can be read ({os.strerror(fault.errno or 0).lower()})"
    return Named(found, missed)


def is_without_key(path: str) -> bool:
    """Tell whether a file of such a name is known to hold neither key nor password: certificates and settings are named like that, too."""
    name = path.rpartition("/")[2].casefold()
    if not name.endswith((".pem", ".asc", ".npmrc")):
        return False
    try:
        with open(os.open(path, _OPEN), "rb") as file:
            content = file.read(_LONGEST_PUBLIC + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return False
    if content is None or len(content) > _LONGEST_PUBLIC:
        return False
    if name.endswith(".npmrc"):
        return not any(word in content.lower() for word in _IN_NPMRC)
    return b"-----BEGIN" in content and b"PRIVATE KEY" not in content


def _portions(directory: str) -> Iterator[list[tuple[str, bool]]]:
    """Yield what a directory holds, never more at once than fits into memory."""
    with os.scandir(directory) as entries:
        while names := [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _AT_ONCE)]:
            yield names
