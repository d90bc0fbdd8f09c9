"""The streams of one task: the agent's text block by block, cards and notes on a terminal, and plain text in a pipe."""

import os
import re
import shutil
from collections.abc import Iterable
from typing import Final, TextIO

from curtainwall.channels.asks.cards import card_lines, card_rows
from curtainwall.channels.conversation import StreamedMessage
from curtainwall.channels.plain import GOES_ON, plain
from curtainwall.model import PendingAsk

CARD_BAR: Final = "┃ "
_NOTE_MARGIN = "  "
_NO_FOLDING, _FOLDING = "\x1b[?7l", "\x1b[?7h"


class OutputStream:
    """One stream. When its reader leaves, that is remembered, and what is written afterwards is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_left = False

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return self._stream.isatty()

    def write(self, text: str) -> None:
        """Write at once, while somebody reads."""
        if self.is_left:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self.is_left = True

    def draw(self, rows: str) -> None:
        """Write rows that fit a terminal.

        INVARIANT: the terminal folds none of them, even where it takes a letter to be wider than we do: what it would put into the first
        column of the next row could look like a question.
        """
        self.write(f"{_NO_FOLDING}{rows}{_FOLDING}" if self.isatty() and os.environ.get("TERM") != "dumb" else rows)

    def note(self, text: str) -> None:
        """Write a message for the user; on a terminal behind a margin, and with a mark where it goes on below."""
        if not self.isatty():
            self.write(f"{plain(text)}\n")
            return
        first, *more = plain(text).split("\n")
        self._put(_NOTE_MARGIN, (first, *(f"{GOES_ON}{line}" for line in more)))

    def card(self, ask: PendingAsk, heading: str) -> None:
        """Write the card of an ask behind a bar, under a heading."""
        self._put("", (f"{heading} ({ask.approval}):",))
        self._put(CARD_BAR, (line.text for line in card_lines(ask)))

    def prompt(self, question: str) -> None:
        """Write a question that waits for a key. Only questions and the headings of their cards begin in the first column."""
        self._put("", (question,))

    def _put(self, margin: str, lines: Iterable[str]) -> None:
        width = shutil.get_terminal_size().columns - 1 - len(margin) if self.isatty() else None
        self.draw("".join(f"{margin}{row}\n" for row in card_rows(lines, width)))


_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")


def whole_blocks(text: str) -> int:
    """Return how many characters at the start of a text are blocks that nothing which follows can change."""
    end, at = 0, 0
    fence = ""
    is_open = is_behind_blank = False
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            is_new = is_behind_blank and is_open and not fence and line[0] not in " \t\r" and not _may_become_fence(line)
            return at if is_new else end
        found = _FENCE.match(line)
        is_blank = not line.strip()
        if not fence and is_behind_blank and is_open and not is_blank and line[0] not in " \t":
            end, is_open = at, False
        at += len(line)
        if fence:
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
        elif found and not (found[1][0] == "`" and "`" in found[2]):
            fence = found[1]
        is_open = is_open or not is_blank
        is_behind_blank = is_blank
    return end


def _may_become_fence(line: str) -> bool:
    # A block can end before a fence as well, but while only its first letters are there nobody knows.
    return line.strip() in ("`", "``", "~", "~~")


class AnswerWriter:
    """Text on its way to a stream, and everything that was said, for the document."""

    def __init__(self, out: OutputStream | None, *, colour: bool) -> None:
        self._out = out
        self._is_drawn = out is not None and out.isatty()
        self._colour = colour
        self._streamed = StreamedMessage()
        self._said: list[str] = []
        self._has_written = False
        self._held: list[str] | None = None

    @property
    def text(self) -> str:
        """Everything that was said, message by message."""
        return "\n\n".join(self._said)

    def add_live(self, piece: str) -> None:
        """Take in what is said right now."""
        self._streamed.add_live(piece)
        self._write_blocks()

    def logged(self, piece: str) -> None:
        """Take in a piece that the log keeps."""
        self._streamed.logged(piece)
        self._write_blocks()

    def spoke(self, whole: str) -> None:
        """End a message."""
        if whole.strip():
            self._said.append(whole)
        self._write(self._streamed.spoke(whole))

    def broke_off(self) -> None:
        """End a message of which no more will come."""
        if self._streamed.text.strip():
            self._said.append(self._streamed.text)
        self._write(self._streamed.broke_off())

    def _write_blocks(self) -> None:
        if self._is_drawn:
            self._write(self._streamed.take(whole_blocks(self._streamed.tail)))

    def hold(self) -> None:
        """Keep what is said from now on until `release`."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Write what was kept, and from now on everything at once."""
        held, self._held = self._held or [], None
        for text in held:
            self._write(text)

    def _write(self, text: str) -> None:
        if self._out is None or not text.strip():
            return
        if self._held is not None:
            self._held.append(text)
            return
        gap = "\n" if self._has_written else ""
        if self._is_drawn:
            self._out.draw(f"{gap}{self._drawn(text)}")
        else:
            self._out.write(f"{gap}{plain(text).rstrip()}\n")
        self._has_written = True

    def _drawn(self, text: str) -> str:
        from curtainwall.channels.terminal.renderer import Renderer  # late: only a terminal needs the library that draws

        return Renderer(shutil.get_terminal_size().columns - 1, self._colour).markdown(text)
