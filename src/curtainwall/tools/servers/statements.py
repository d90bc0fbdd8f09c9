"""All that a server says about a tool, as lines for a human to read: nothing is left out, and no text can pass for a line of ours.

Text is quoted as JSON quotes it, one line of it on each line. Making these lines safe for a screen is up to whoever shows them.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, Literal

from pydantic import JsonValue

from curtainwall.tools.servers.offered import Offered

Mark = Literal[" ", "+", "-"]

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_$-]+")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_LONG: Final = 80
_AROUND: Final = 3
# Comparing takes the number of lines multiplied; beyond this all old lines are shown as gone and all new ones as added.
_MOST_COMPARED: Final = 1_000


@dataclass(frozen=True, slots=True)
class StatementLine:
    """One line of a comparison: kept, added or removed. `skipped` counts the lines before it that are left out, all of them unchanged."""

    mark: Mark
    text: str
    skipped: int = 0


def statement(tool: Offered) -> list[str]:
    """Return everything that the server says about a tool."""
    return list(_lines("", tool.told))


def comparison(then: Offered, now: Offered) -> list[StatementLine]:
    """Return every line that differs from what was reviewed, in full, with some of those around it."""
    marked = list(_compared(statement(then), statement(now)))
    near = {place + step for place, (mark, _) in enumerate(marked) if mark != " " for step in range(-_AROUND, _AROUND + 1)}
    shown: list[StatementLine] = []
    skipped = 0
    for place, (mark, text) in enumerate(marked):
        if place in near:
            shown.append(StatementLine(mark, text, skipped))
            skipped = 0
        else:
            skipped += 1
    return shown


def _compared(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[Mark, str]]:
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    yield from _marked(" ", old[:start])
    gone, come = old[start : len(old) - end], new[start : len(new) - end]
    whole = [("replace", 0, len(gone), 0, len(come))]
    steps = whole if max(len(gone), len(come)) > _MOST_COMPARED else SequenceMatcher(None, gone, come, autojunk=False).get_opcodes()
    for tag, old_from, old_to, new_from, new_to in steps:
        if tag == "equal":
            yield from _marked(" ", gone[old_from:old_to])
        else:
            yield from _marked("-", gone[old_from:old_to])
            yield from _marked("+", come[new_from:new_to])
    yield from _marked(" ", old[len(old) - end :])


def _marked(mark: Mark, lines: Sequence[str]) -> Iterator[tuple[Mark, str]]:
    for line in lines:
        yield mark, line


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def _lines(path: str, value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            name = key if _PLAIN_KEY.fullmatch(key) else _quoted(key)
            yield from _lines(f"{path}.{name}" if path else name, value[key])
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for place, each in enumerate(value):
            yield from _lines(f"{path}[{place}]", each)
    elif isinstance(value, str) and ("\n" in value or len(value) > _LONG):
        yield f"{path}:"
        yield from (f"    {_quoted(line)}" for line in _LINE.findall(value))
    else:
        yield f"{path}: {_quoted(value)}"


def _quoted(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
