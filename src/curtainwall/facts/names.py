"""Names in a directory and all below it, looked for within bounds: what was found, and why something may have been missed."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

MOST_NAMES: Final = 500_000
"""How many names are looked at before the rest is given up: about half a second's worth."""

_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Named:
    """The first file of each wanted name, by its name; `missed` says in words why there may be others, or nothing."""

    found: Mapping[str, str]
    missed: str = ""


def find_named(root: str, is_wanted: Callable[[str], bool], most: int = MOST_NAMES) -> Named:
    """Look for files by their names, without following links."""
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
                    elif is_wanted(name):
                        found.setdefault(name, f"{here}/{name}")
                if left < 0:
                    return Named(found, f"it holds more than {most:,} names")
        except (PermissionError, FileNotFoundError, NotADirectoryError):
            # What is closed to us is closed to whoever is let in by us, and what is gone is gone.
            continue
        except OSError as fault:
            missed = f"not all of it can be read ({os.strerror(fault.errno or 0).lower()})"
    return Named(found, missed)


def _portions(directory: str) -> Iterator[list[tuple[str, bool]]]:
    """Yield what a directory holds, never more at once than fits into memory."""
    with os.scandir(directory) as entries:
        while names := [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _AT_ONCE)]:
            yield names
