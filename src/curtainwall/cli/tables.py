"""Rows as text that fits where it is read: a table, one with folded cells, or, where even that is too broad, a paragraph for each row.

Only blanks are broken at, so an id or a path that somebody has to copy stays whole.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from curtainwall.channels.text.plain import breadth
from curtainwall.cli.screen import paint, room
from curtainwall.session import inert

# Folded beyond this, a table is harder to read than paragraphs; a time still makes two lines, its day and the rest.
_NARROWEST, _TALLEST = 12, 4

Shade = Callable[[str], str]
"""Sets a head off from what stands under or beside it."""


def columns(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as aligned columns that fit the terminal; whatever stands in them is inert. In a pipe each row is one line."""
    cells = [[inert(str(cell)) for cell in row] for row in rows]
    return laid_out(heads, cells, room(), lambda head: paint(head, "dim"))


def hanging(text: str, indent: int) -> str:
    """Return one line of text that begins so far to the right, folded there where the terminal is narrow."""
    return text if (most := room()) is None else f"\n{' ' * indent}".join(folded(text, most - indent))


def laid_out(heads: Sequence[str], rows: Sequence[Sequence[str]], room: int | None, shade: Shade) -> str:
    """Return rows under their heads, in at most so many columns of a terminal where that can be done; None is any number of them."""
    widths = [max(map(breadth, column)) for column in zip(heads, *rows, strict=True)]
    if room is None or not any(map(any, rows)):
        return _table(heads, rows, widths, shade)
    for gap in (2, 1):
        narrow = _narrowed(widths, [heads, *rows], room - gap * (len(heads) - 1))
        is_low = all(len(folded(cell, width)) <= _TALLEST for row in rows for cell, width in zip(row, narrow, strict=True))
        if is_low and sum(narrow) + gap * (len(heads) - 1) <= room:
            return _table(heads, rows, narrow, shade, " " * gap)
    return _paragraphs(heads, rows, room, shade)


def folded(text: str, width: int) -> list[str]:
    """Return text in lines of a width, broken at blanks alone: a longer word has a line of its own, whole."""
    if breadth(text) <= width:
        return [text]
    lines: list[str] = []
    for word in text.split(" "):
        if lines and breadth(f"{lines[-1]} {word}") <= width:
            lines[-1] = f"{lines[-1]} {word}"
        else:
            lines.append(word)
    return lines


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], shade: Shade, gap: str = "  ") -> str:
    lines = [gap.join(shade(_padded(head, width)) for head, width in zip(heads, widths, strict=True)).rstrip()]
    for row in rows:
        cells = zip_longest(*(folded(cell, width) for cell, width in zip(row, widths, strict=True)), fillvalue="")
        lines += [gap.join(_padded(part, width) for part, width in zip(parts, widths, strict=True)).rstrip() for parts in cells]
    return "\n".join(lines)


def _narrowed(widths: Sequence[int], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return widths that fit, the broadest columns narrowed first, or nearly so where words would have to be broken."""
    narrow = [*widths]
    floors = [
        max(min(width, _NARROWEST), *(breadth(word) for cell in column for word in cell.split(" ")))
        for width, column in zip(widths, zip(*rows, strict=True), strict=True)
    ]
    while sum(narrow) > room and (able := [place for place, width in enumerate(narrow) if width > floors[place]]):
        narrow[max(able, key=narrow.__getitem__)] -= 1
    return narrow


def _paragraphs(heads: Sequence[str], rows: Sequence[Sequence[str]], room: int, shade: Shade) -> str:
    """Return each row as lines of its own, without what it does not have."""
    indent = max(breadth(head) for head, column in zip(heads, zip(*rows, strict=True), strict=True) if any(column)) + 2
    return "\n\n".join(
        "\n".join(_titled(head, cell, indent, room, shade) for head, cell in zip(heads, row, strict=True) if cell) for row in rows
    )


def _titled(head: str, cell: str, indent: int, room: int, shade: Shade) -> str:
    if indent + max(map(breadth, cell.split(" "))) <= room:
        return shade(_padded(head, indent)) + f"\n{' ' * indent}".join(folded(cell, room - indent))
    # Below its head a long word has more room.
    return "\n  ".join([shade(head), *folded(cell, room - 2)])


def _padded(text: str, width: int) -> str:
    return text + " " * (width - breadth(text))
