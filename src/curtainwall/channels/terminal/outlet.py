"""A stream of one task. On a terminal every row that is not a question of ours stands behind a margin; in a pipe text is exactly text."""

import os
import shutil
from collections.abc import Iterable
from typing import Final, TextIO

from curtainwall.channels.asks.cards import card_lines, card_rows
from curtainwall.channels.text.plain import GOES_ON, plain
from curtainwall.model import PendingAsk

CARD_BAR: Final = "┃ "
_NOTE_MARGIN = "  "
_NO_FOLDING, _FOLDING = "\x1b[?7l", "\x1b[?7h"


class Outlet:
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
