"""Glob patterns over relative paths, for agents and ignore files; matching time is bounded by the product of both lengths."""

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from itertools import pairwise

from curtainwall.model import record

_MAX_SPELLINGS = 64
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


class Glob:
    """One pattern: `*` and `?` within a name, `**` over any number of directories, `{a,b}` either."""

    def __init__(self, pattern: str, *, braces: bool = True) -> None:
        text = pattern.removeprefix("./")
        # A pattern without a slash matches names at any depth.
        self._spellings = [_steps(one if "/" in one.rstrip("/") else f"**/{one}") for one in (_expanded(text) if braces else (text,))]

    def matches(self, path: str) -> bool:
        """Tell whether the pattern matches a relative path without `.` and `..`."""
        names = path.split("/")
        return any(_matches(steps, names) for steps in self._spellings)


@record
class _Line:
    glob: Glob
    keeps: bool
    only_directories: bool


class IgnoreFile:
    """The lines of one `.gitignore`, at most `most` of them, for paths relative to its directory."""

    def __init__(self, text: str, most: int = 2_000) -> None:
        self._lines = [line for line in map(_line, text.splitlines()[:most]) if line is not None]

    def __len__(self) -> int:
        """Return the number of lines with a pattern."""
        return len(self._lines)

    def says(self, path: str, *, is_directory: bool) -> bool | None:
        """Return whether the last matching line ignores this path; None if no line matches."""
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
    """Tell whether the steps match all the names, tracking the set of reachable positions after each step."""
    reached: set[int] = {0}
    for step in steps:
        if not reached:
            return False
        if step is None:
            reached = set(range(min(reached), len(names) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(names) and step.match(names[at])}
    return len(names) in reached
