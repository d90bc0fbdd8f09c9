"""Output of the commands: results on stdout, everything else on stderr, as text or as exactly one JSON document.

Lines break only at spaces, so that ids and paths can be copied whole.
"""

import codecs
import json
import os
import shutil
import signal
import sys
import termios
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer

from curtainwall.channels.plain import display_width
from curtainwall.cli.global_options import is_quiet
from curtainwall.cli.streams import json_escape
from curtainwall.model import CurtainwallError, Effect, Millis
from curtainwall.session import inert


class Misuse(CurtainwallError):
    """The command line makes no sense."""

    exit_code = 2


class Output(StrEnum):
    """How a result is shown."""

    TEXT = "text"
    JSON = "json"


def require_directory(path: Path | None, option: str) -> None:
    """Raise `Misuse` if a given directory does not exist; a typo must not pass for an empty directory."""
    if path is not None and not path.is_dir():
        why = "is no directory" if path.exists() else "does not exist"
        raise Misuse(f"{option} `{path}` {why}; name a directory that is there")


OutputOption = Annotated[Output, typer.Option("--output", help="text, or exactly one JSON document")]
YesOption = Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")]

_COLOURS = {"allow": "32", "ask": "33", "deny": "31", "ok": "32", "warn": "33", "fail": "31", "bold": "1", "dim": "2"}


def show(text: str) -> None:
    """Print a result."""
    print(text)


def show_json(document: object) -> None:
    """Print a command's one JSON document."""
    print(json.dumps(document, ensure_ascii=True))


def note(text: str) -> None:
    """Print a message that is not part of the result."""
    print(text, file=sys.stderr)


def hint(text: str) -> None:
    """Print progress, a next step, or that there is nothing to show; `-q` leaves it out. A warning is a `note`."""
    if not is_quiet():
        note(text)


def paint(text: str, colour: str) -> str:
    """Return coloured text if stdout is a terminal and colours are not turned off."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty():
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def verdict_word(effect: Effect) -> str:
    """Return an effect in its colour."""
    return paint(effect.value, effect.value)


def json_line(text: str) -> str:
    """Return a line of JSON; escape what is not printable on a terminal, and what is not ASCII if stdout is not UTF-8."""
    is_utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    if is_utf8 and not sys.stdout.isatty():
        return text
    return "".join(letter if letter.isprintable() and (is_utf8 or letter.isascii()) else json_escape(letter) for letter in text)


def timestamp(at: Millis | None) -> str | None:
    """Return a time in ISO format, for programs."""
    return None if at is None else datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def room() -> int | None:
    """Return the width of the terminal, or COLUMNS; None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation; raise if there is no terminal or the answer is no."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misuse("nobody can be asked here; add --yes if you mean it")
    # A running event loop handles Ctrl-C by cancelling its task at the next await, but a blocking question never awaits.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    # Discard what was typed before the question was shown.
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as abort:
        # End the line of the question.
        note("")
        if isinstance(abort.__context__, KeyboardInterrupt):
            note("nothing was done")
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
    if not agreed:
        raise typer.Abort


# A table that is folded more than this is harder to read than paragraphs; a timestamp still fits in two lines.
_NARROWEST, _TALLEST = 12, 4

Shade = Callable[[str], str]
"""Highlights a head."""


def columns(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as aligned columns that fit the terminal, with inert cells. In a pipe each row is one line."""
    cells = [[inert(str(cell)) for cell in row] for row in rows]
    return laid_out(heads, cells, room(), lambda head: paint(head, "dim"))


def hanging(text: str, indent: int) -> str:
    """Return a line of text that starts at an indent, folded to fit the terminal."""
    return text if (width := room()) is None else f"\n{' ' * indent}".join(folded(text, width - indent))


def laid_out(heads: Sequence[str], rows: Sequence[Sequence[str]], room: int | None, shade: Shade) -> str:
    """Return rows under their heads, no wider than `room` if possible; None means no limit."""
    widths = [max(map(display_width, column)) for column in zip(heads, *rows, strict=True)]
    if room is None or not any(map(any, rows)):
        return _table(heads, rows, widths, shade)
    for gap in (2, 1):
        narrow = _narrowed(widths, [heads, *rows], room - gap * (len(heads) - 1))
        is_low = all(len(folded(cell, width)) <= _TALLEST for row in rows for cell, width in zip(row, narrow, strict=True))
        if is_low and sum(narrow) + gap * (len(heads) - 1) <= room:
            return _table(heads, rows, narrow, shade, " " * gap)
    return _paragraphs(heads, rows, room, shade)


def folded(text: str, width: int) -> list[str]:
    """Return text in lines of a width, broken only at spaces; a longer word gets its own line."""
    if display_width(text) <= width:
        return [text]
    lines: list[str] = []
    for word in text.split(" "):
        if lines and display_width(f"{lines[-1]} {word}") <= width:
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
    """Return widths that fit, narrowing the widest columns first, but no narrower than the longest word."""
    narrow = [*widths]
    floors = [
        max(min(width, _NARROWEST), *(display_width(word) for cell in column for word in cell.split(" ")))
        for width, column in zip(widths, zip(*rows, strict=True), strict=True)
    ]
    while sum(narrow) > room and (reducible := [index for index, width in enumerate(narrow) if width > floors[index]]):
        narrow[max(reducible, key=narrow.__getitem__)] -= 1
    return narrow


def _paragraphs(heads: Sequence[str], rows: Sequence[Sequence[str]], room: int, shade: Shade) -> str:
    """Return each row as a paragraph of titled lines, without empty cells."""
    indent = max(display_width(head) for head, column in zip(heads, zip(*rows, strict=True), strict=True) if any(column)) + 2
    return "\n\n".join(
        "\n".join(_titled(head, cell, indent, room, shade) for head, cell in zip(heads, row, strict=True) if cell) for row in rows
    )


def _titled(head: str, cell: str, indent: int, room: int, shade: Shade) -> str:
    if indent + max(map(display_width, cell.split(" "))) <= room:
        return shade(_padded(head, indent)) + f"\n{' ' * indent}".join(folded(cell, room - indent))
    # A long word has more room below its head.
    return "\n  ".join([shade(head), *folded(cell, room - 2)])


def _padded(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))
