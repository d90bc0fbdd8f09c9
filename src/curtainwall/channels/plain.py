"""Text of others on a person's screen: what could move a cursor, hide itself or pretend is escaped, and what people read stays."""

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
"""Stands before each row of a screen that goes on with the line above."""

# Letters and marks that Unicode calls printable and nobody sees: fillers, the braille blank, joiners and variation selectors.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0").union(
    map(chr, range(0xFE00, 0xFE10)), map(chr, range(0xE0100, 0xE01F0))
)
# Behind a picture they only choose how it is drawn, and terminals disagree about how wide that is; they are left out there.
_PICTURE_JOINTS = frozenset("\ufe0e\ufe0f\u200d")


def plain(text: str) -> str:
    """Return text that a terminal shows and does not follow: lines stay lines, tabs become spaces, the rest is visible or escaped."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if "\t" in text:
        text = text.replace("\t", TAB)
    if text.isascii() and text.isprintable():
        return text
    return "\n".join(_visible(line) for line in text.split("\n"))


def plain_line(text: str, limit: int = _LINE_LIMIT) -> str:
    """Return text as one line that is visible through and through; the middle of a long one is cut, and says so."""
    half = limit // 2
    if len(text) > 2 * limit:
        # Making megabytes visible takes seconds, and nobody would see them.
        return f"{_visible(text[:half])[:half]} …[{len(text) - 2 * half} characters cut]… {_visible(text[-half:])[-half:]}"
    shown = _visible(text)
    if len(shown) <= limit:
        return shown
    return f"{shown[:half]} …[{len(shown) - 2 * half} characters cut]… {shown[-half:]}"


def short(text: str, limit: int) -> str:
    """Return the beginning of a text on one line, for places where there is no room for more."""
    words = " ".join(text.split())
    shown = _visible(words[: 2 * limit])
    return shown if len(shown) <= limit and len(words) <= 2 * limit else f"{shown[: max(limit - 1, 0)]}…"


def rows(line: str, width: int) -> list[str]:
    """Return a line, visible already, as rows of a screen.

    INVARIANT: every row but the first begins with a mark. Blanks that fill up a row, and words that begin the next one, would otherwise
    make a line of our own out of what somebody else wrote.
    """
    return _rows(line, width, GOES_ON, whole_words=False)


def exact_rows(line: str, width: int) -> list[str]:
    """Return a line, visible already, as rows that are filled to their last column, so that no blank is lost where a row ends."""
    found: list[str] = []
    start = 0
    while start < len(line) or not found:
        end = _fitting(line, start, max(width, _NARROWEST) - (len(GOES_ON) if found else 0))
        found.append(f"{GOES_ON if found else ''}{line[start:end]}")
        start = end
    return found


def _rows(line: str, width: int, mark: str, *, whole_words: bool) -> list[str]:
    found: list[str] = []
    start = 0
    while start < len(line) or not found:
        end = _fitting(line, start, max(width, _NARROWEST) - (len(mark) if found else 0))
        if end < len(line):
            first = end - len(line[start:end].lstrip(" "))
            blank = line.rfind(" ", first if whole_words else (start + end) // 2, end + 1)
            end = blank + 1 if blank >= 0 else end
        found.append(f"{mark if found else ''}{line[start:end]}".rstrip(" "))
        start = end
    return found


def hanging_rows(line: str, width: int) -> list[str]:
    """Return a line of a list, visible already, as rows that stay below its last column, or further right than it begins.

    INVARIANT: only the first row begins in the first column, so that no words of a line pass for another line.
    """
    starts = [display_width(line[: gap.end()]) for gap in _GAPS.finditer(line)]
    blanks = len(line) - len(line.lstrip(" "))
    column = max((start for start in starts if start <= width // 2), default=0)
    inwards = column or min(blanks + _INWARDS, width // 2)
    # Where no column is near enough to go on below it, filling up the one before would only waste a row.
    is_closed_up = starts and not column and display_width(line) > width
    return _rows(_GAPS.sub("  ", line) if is_closed_up else line, width, " " * inwards, whole_words=True)


def display_width(text: str) -> int:
    """Return how many columns of a terminal a visible text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    return 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _fitting(line: str, start: int, width: int) -> int:
    """Return how far a line goes from a place until a row is full."""
    if line[start : start + width].isascii():
        return min(start + width, len(line))
    left = width
    for place in range(start, len(line)):
        left -= _columns(line[place])
        if left < 0:
            return place
    return len(line)


def _visible(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = 0
    before = ""
    for char in text:
        # A few marks make an accent; a pile of them grows over the lines around it.
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if char in _PICTURE_JOINTS and before and not before.isascii() and before.isprintable():
            continue
        is_seen = char.isprintable() and char not in _UNSEEN and marks <= _MARKS_LIMIT
        shown.append(char if is_seen else char.encode("unicode_escape", "surrogatepass").decode())
        before = char
    return "".join(shown)


def counted(many: int, one: str, more: str = "") -> str:
    """Return how many there are of something, as `1 turn` or `2 turns`."""
    return f"{many} {one if many == 1 else more or f'{one}s'}"
