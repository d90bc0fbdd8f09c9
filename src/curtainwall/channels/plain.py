"""Untrusted text on a screen: escapes what could move the cursor, hide or deceive, and keeps what people read."""

import re
import unicodedata
from typing import Final

_MARKS_LIMIT = 3
_LINE_LIMIT = 2_000
_NARROWEST = 8
_INWARDS = 2
_GAPS = re.compile(r"(?<=\S) {2,}(?=\S)")
TAB = "    "
GOES_ON: Final = "↪ "
"""Marks each screen row that continues the line above."""

# Characters that Unicode calls printable but nobody sees: fillers, the braille blank, joiners and variation selectors.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0").union(
    map(chr, range(0xFE00, 0xFE10)), map(chr, range(0xE0100, 0xE01F0))
)
# After an emoji these only choose how it is drawn, and terminals disagree about the width; they are dropped there.
_PICTURE_JOINTS = frozenset("\ufe0e\ufe0f\u200d")


def plain(text: str) -> str:
    """Return text that a terminal displays without obeying it: lines stay lines, tabs become spaces, the rest is visible or escaped."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if "\t" in text:
        text = text.replace("\t", TAB)
    if text.isascii() and text.isprintable():
        return text
    return "\n".join(_visible(line) for line in text.split("\n"))


def plain_line(text: str, limit: int = _LINE_LIMIT) -> str:
    """Return text as one fully visible line; the middle of a long one is cut, with a note."""
    half = limit // 2
    if len(text) > 2 * limit:
        # Escaping megabytes takes seconds, and nobody would see the result.
        return f"{_visible(text[:half])[:half]} …[{len(text) - 2 * half} characters cut]… {_visible(text[-half:])[-half:]}"
    shown = _visible(text)
    if len(shown) <= limit:
        return shown
    return f"{shown[:half]} …[{len(shown) - 2 * half} characters cut]… {shown[-half:]}"


def short(text: str, limit: int) -> str:
    """Return the beginning of a text on one line, where space is limited."""
    words = " ".join(text.split())
    shown = _visible(words[: 2 * limit])
    return shown if len(shown) <= limit and len(words) <= 2 * limit else f"{shown[: max(limit - 1, 0)]}…"


def rows(line: str, width: int) -> list[str]:
    """Wrap a line that is already visible into screen rows.

    INVARIANT: every row but the first begins with a mark. Otherwise blanks that fill a row, and words at the start of the next, could make
    another person's text look like a line of ours.
    """
    return _rows(line, width, GOES_ON, whole_words=False)


def exact_rows(line: str, width: int) -> list[str]:
    """Wrap a line that is already visible into rows filled to the last column, so that no blank is lost at the end of a row."""
    result: list[str] = []
    start = 0
    while start < len(line) or not result:
        end = _fitting(line, start, max(width, _NARROWEST) - (len(GOES_ON) if result else 0))
        result.append(f"{GOES_ON if result else ''}{line[start:end]}")
        start = end
    return result


def _rows(line: str, width: int, mark: str, *, whole_words: bool) -> list[str]:
    result: list[str] = []
    start = 0
    while start < len(line) or not result:
        end = _fitting(line, start, max(width, _NARROWEST) - (len(mark) if result else 0))
        if end < len(line):
            first = end - len(line[start:end].lstrip(" "))
            blank = line.rfind(" ", first if whole_words else (start + end) // 2, end + 1)
            end = blank + 1 if blank >= 0 else end
        result.append(f"{mark if result else ''}{line[start:end]}".rstrip(" "))
        start = end
    return result


def hanging_rows(line: str, width: int) -> list[str]:
    """Wrap a line of a list that is already visible; further rows are aligned with its last column, or indented.

    INVARIANT: only the first row begins in the first column, so that no part of a line passes for another line.
    """
    starts = [display_width(line[: gap.end()]) for gap in _GAPS.finditer(line)]
    blanks = len(line) - len(line.lstrip(" "))
    column = max((start for start in starts if start <= width // 2), default=0)
    inwards = column or min(blanks + _INWARDS, width // 2)
    # If no column is close enough to align with, padding the one before it would only waste a row.
    is_closed_up = starts and not column and display_width(line) > width
    return _rows(_GAPS.sub("  ", line) if is_closed_up else line, width, " " * inwards, whole_words=True)


def display_width(text: str) -> int:
    """Return how many terminal columns a visible text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    return 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _fitting(line: str, start: int, width: int) -> int:
    """Return the index at which a row that begins at `start` is full."""
    if line[start : start + width].isascii():
        return min(start + width, len(line))
    left = width
    for index in range(start, len(line)):
        left -= _columns(line[index])
        if left < 0:
            return index
    return len(line)


def _visible(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = 0
    before = ""
    for char in text:
        # A few combining marks make an accent; a pile of them grows over the lines around it.
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if char in _PICTURE_JOINTS and before and not before.isascii() and before.isprintable():
            continue
        is_seen = char.isprintable() and char not in _UNSEEN and marks <= _MARKS_LIMIT
        shown.append(char if is_seen else char.encode("unicode_escape", "surrogatepass").decode())
        before = char
    return "".join(shown)


def counted(many: int, one: str, more: str = "") -> str:
    """Return a count with its noun, such as `1 turn` or `2 turns`."""
    return f"{many} {one if many == 1 else more or f'{one}s'}"
