"""Where a key stands in `config.toml`, for messages; it reads lines, and only a hint hangs on it."""

import re
from collections.abc import Sequence

_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_TABLE = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")


def line_of(text: str, place: Sequence[int | str]) -> int | None:
    """Return the line where a key is written, or of the nearest table around it that is; None where none of it is."""
    wanted = [str(part) for part in place if not isinstance(part, int)]
    table: list[str] = []
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if (found := _TABLE.match(line)) is not None:
            table = path = _parts(found[2])
        elif (key := _KEY.match(line)) is not None:
            path = [*table, *_parts(key[1])]
        else:
            continue
        depth = len(path) if path == wanted[: len(path)] else len(wanted) if wanted and path[: len(wanted)] == wanted else 0
        if depth and (best is None or depth > best[0]):
            best = (depth, number)
    return None if best is None else best[1]


def _parts(dotted: str) -> list[str]:
    return [part[1:-1] if part[0] in "\"'" else part for part in re.findall(_PART, dotted)]
