"""Makes untrusted text safe to show: every character is visible, and none moves a cursor or passes for our own text."""

import unicodedata
from typing import Final

from curtainwall.model.subjects import in_order

VALUE_LIMIT: Final = 2_000
"""How many characters of a text are shown; the middle of a longer one is cut."""

_MARKS_LIMIT = 3
# Characters that Unicode calls printable although they are invisible: fillers, the braille blank, joiners and variation selectors.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0").union(
    map(chr, range(0xFE00, 0xFE10)), map(chr, range(0xE0100, 0xE01F0))
)


def inert(text: str) -> str:
    """Return text that cannot move a cursor, hide or pass for ours: one line of visible characters, cut if long."""
    half = VALUE_LIMIT // 2
    if len(text) > 2 * VALUE_LIMIT:
        # Escaping megabytes takes seconds, and the result would be cut anyway.
        return f"{visible(text[:half])[:half]} …[{len(text) - 2 * half} characters cut]… {visible(text[-half:])[-half:]}"
    shown = visible(text)
    if len(shown) <= VALUE_LIMIT:
        return shown
    return f"{shown[:half]} …[{len(shown) - 2 * half} characters cut]… {shown[-half:]}"


def spelt(text: str) -> str:
    """Return inert text in the order in which it is used, even beside right-to-left letters."""
    return inert(in_order(text))


def spelt_whole(text: str) -> str:
    """Return text in the order in which it is used, with every character visible and nothing cut."""
    return visible(in_order(text))


def visible(text: str) -> str:
    """Escape every character that is invisible or would appear in another place; nothing is cut."""
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = 0
    for char in text:
        # A few combining marks make an accent; many of them cover the lines around them.
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        plain = char.isprintable() and char not in _UNSEEN and marks <= _MARKS_LIMIT
        shown.append(char if plain else char.encode("unicode_escape", "surrogatepass").decode())
    return "".join(shown)
