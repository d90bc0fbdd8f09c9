"""Letters that are written from right to left: they move what stands beside them, so that a screen shows another order than there is."""

import unicodedata
from typing import Final

_LEFTWARD: Final = frozenset(("R", "AL", "AN"))


def has_leftward(text: str) -> bool:
    """Tell whether a text has such letters."""
    return not text.isascii() and any(unicodedata.bidirectional(letter) in _LEFTWARD for letter in text)


def in_order(text: str) -> str:
    """Return a text with these letters escaped, so that a path, a host or a command is read in the order in which it is used."""
    if not has_leftward(text):
        return text
    return "".join(
        letter.encode("unicode_escape").decode() if unicodedata.bidirectional(letter) in _LEFTWARD else letter for letter in text
    )
