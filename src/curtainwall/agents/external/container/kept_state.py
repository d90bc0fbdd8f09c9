"""What an agent keeps of its conversations in its own home, which it may have filled with anything: looked at, never followed."""

import asyncio
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from typing import Final

_MOST: Final = 20_000
"""How many names are looked at; an agent that keeps more has lost its conversation as far as we can see."""


async def sizes_of(home: Path, patterns: Sequence[str], most: int = _MOST) -> Mapping[Path, int]:
    """Return the files that patterns find below an agent's home, with their sizes; beside everything else, because it may take a while."""
    return await asyncio.to_thread(_sizes, home, patterns, most) if patterns else {}


def _sizes(home: Path, patterns: Sequence[str], most: int) -> Mapping[Path, int]:
    looking = _Looking(most)
    return {path: about.st_size for pattern in patterns for path, about in looking.find(home, pattern.split("/"))}


class _Looking:
    """One look, which ends after so many names."""

    def __init__(self, most: int) -> None:
        self._left = most

    def find(self, directory: Path, parts: Sequence[str]) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield what is there; links are no directories, and what goes meanwhile is not there."""
        for path in self._named(directory, parts[0]):
            try:
                about = path.lstat()
            except (OSError, ValueError):
                continue
            if len(parts) == 1:
                yield path, about
            elif stat.S_ISDIR(about.st_mode):
                yield from self.find(path, parts[1:])

    def _named(self, directory: Path, pattern: str) -> Iterator[Path]:
        if not has_magic(pattern):
            if pattern not in ("", ".", ".."):
                yield directory / pattern
            return
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        return
                    if fnmatchcase(entry.name, pattern):
                        yield directory / entry.name
        except OSError:
            return
