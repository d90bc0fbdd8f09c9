"""The output streams of one task: the agent's text block by block, cards and notes on a terminal, and plain text in a pipe."""

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
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class OutputStream:
    """One stream. When its reader goes away, this is recorded, and later output is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_closed = False

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return self._stream.isatty()

    def write(self, text: str) -> None:
        """Write immediately, unless the reader has gone."""
        if self.is_closed:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self.is_closed = True

    def draw(self, rows: str) -> None:
        """Write rows that fit a terminal.

        INVARIANT: the terminal wraps none of them, even if it considers a character wider than we do: text that it moves to the first
        column of the next row could look like a question.
        """
        self.write(f"{_NO_WRAP}{rows}{_WRAP}" if self.isatty() and os.environ.get("TERM") != "dumb" else rows)

    def note(self, text: str) -> None:
        """Write a message for the user; on a terminal with a margin, and a mark on continued lines."""
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
    """Return the length of the leading markdown blocks that no further text can change."""
    end, at = 0, 0
    fence = ""
    is_open = is_behind_blank = False
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            is_new = is_behind_blank and is_open and not fence and line[0] not in " \t\r" and not _may_become_fence(line)
            return at if is_new else end
        match = _FENCE.match(line)
        is_blank = not line.strip()
        if not fence and is_behind_blank and is_open and not is_blank and line[0] not in " \t":
            end, is_open = at, False
        at += len(line)
        if fence:
            if match and match[1].startswith(fence) and not match[2].strip():
                fence = ""
        elif match and not (match[1][0] == "`" and "`" in match[2]):
            fence = match[1]
        is_open = is_open or not is_blank
        is_behind_blank = is_blank
    return end


def _may_become_fence(line: str) -> bool:
    # A block may also end before a fence, but its first characters alone do not tell.
    return line.strip() in ("`", "``", "~", "~~")


class AnswerWriter:
    """Writes the agent's text to a stream, and collects it for the result document."""

    def __init__(self, out: OutputStream | None, *, colour: bool) -> None:
        self._out = out
        self._is_drawn = out is not None and out.isatty()
        self._colour = colour
        self._streamed = StreamedMessage()
        self._messages: list[str] = []
        self._has_written = False
        self._held: list[str] | None = None

    @property
    def text(self) -> str:
        """The agent's text so far, message by message."""
        return "\n\n".join(self._messages)

    def add_live(self, piece: str) -> None:
        """Add live text."""
        self._streamed.add_live(piece)
        self._write_blocks()

    def logged(self, piece: str) -> None:
        """Add a piece from the log."""
        self._streamed.logged(piece)
        self._write_blocks()

    def spoke(self, whole: str) -> None:
        """End a message."""
        if whole.strip():
            self._messages.append(whole)
        self._write(self._streamed.spoke(whole))

    def broke_off(self) -> None:
        """End a message that stays incomplete."""
        if self._streamed.text.strip():
            self._messages.append(self._streamed.text)
        self._write(self._streamed.broke_off())

    def _write_blocks(self) -> None:
        if self._is_drawn:
            self._write(self._streamed.take(whole_blocks(self._streamed.tail)))

    def hold(self) -> None:
        """Hold back output until `release`."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Write what was held back, and stop holding back."""
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
            self._out.draw(f"{gap}{self._render(text)}")
        else:
            self._out.write(f"{gap}{plain(text).rstrip()}\n")
        self._has_written = True

    def _render(self, text: str) -> str:
        from curtainwall.channels.terminal.renderer import Renderer  # late: only a terminal needs the library that draws

        return Renderer(shutil.get_terminal_size().columns - 1, self._colour).markdown(text)
