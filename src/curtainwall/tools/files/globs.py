"""Patterns over relative paths, as agents and ignore files write them; matching is never worse than the product of both lengths."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from itertools import pairwise

_MAX_SPELLINGS = 64
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


class Glob:
    """One pattern: `*` and `?` within a name, `**` over any number of directories, `{a,b}` either."""

    def __init__(self, pattern: str, *, braces: bool = True) -> None:
        text = pattern.removeprefix("./")
        # Without a slash a pattern is about names, at whatever depth.
        self._spellings = [_steps(one if "/" in one.rstrip("/") else f"**/{one}") for one in (_expanded(text) if braces else (text,))]

    def matches(self, path: str) -> bool:
        """Say whether a relative path without `.` and `..` is meant."""
        names = path.split("/")
        return any(_matches(steps, names) for steps in self._spellings)


@dataclass(frozen=True, slots=True)
class _Line:
    glob: Glob
    keeps: bool
    only_directories: bool


class IgnoreFile:
    """The lines of one `.gitignore`, `most` of them, for paths relative to the directory that it lies in."""

    def __init__(self, text: str, most: int = 2_000) -> None:
        self._lines = [line for line in map(_line, text.splitlines()[:most]) if line is not None]

    def __len__(self) -> int:
        """Return how many lines say something."""
        return len(self._lines)

    def says(self, path: str, *, is_directory: bool) -> bool | None:
        """Return whether the last line that speaks of this path ignores it; None where none does."""
        for line in reversed(self._lines):
            if (is_directory or not line.only_directories) and line.glob.matches(path):
                return not line.keeps
        return None


def _line(text: str) -> _Line | None:
    pattern = text.rstrip()
    if not pattern or pattern.startswith("#"):
        return None
    keeps = pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    only_directories = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    if not pattern:
        return None
    # A slash anywhere but at the end ties the pattern to its own directory.
    return _Line(Glob(pattern, braces=False), keeps, only_directories)


def _expanded(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting and len(done) + len(waiting) <= _MAX_SPELLINGS:
        text = waiting.pop()
        braces = _BRACES.search(text)
        if braces is None:
            done.append(text)
        else:
            waiting.extend(text[: braces.start()] + one + text[braces.end() :] for one in braces[1].split(","))
    return [*done, *waiting]


def _steps(pattern: str) -> tuple[re.Pattern[str] | None, ...]:
    """Return one expression per component; None stands for `**`."""
    names = [name for name in pattern.split("/") if name]
    if pattern.endswith("/**"):
        names.append("*")
    kept = [names[0], *(name for before, name in pairwise(names) if (before, name) != ("**", "**"))] if names else []
    return tuple(None if name == "**" else _name(name) for name in kept)


@lru_cache(maxsize=1024)
def _name(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def _matches(steps: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
    """Say whether the steps lead exactly over the names: for each step, the set of places where one can stand."""
    reached: set[int] = {0}
    for step in steps:
        if not reached:
            return False
        if step is None:
            reached = set(range(min(reached), len(names) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(names) and step.match(names[at])}
    return len(names) in reached
