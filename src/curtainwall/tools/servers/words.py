"""A stranger's words as data: without anything that moves a cursor or hides, and not for ever."""

import unicodedata

_KEPT = frozenset("\n\t")


def cleaned(text: str, longest: int) -> str:
    """Return text without control and invisible characters, cut where it is too long, with the cut stated."""
    # Cut first: cleaning looks at every letter.
    short = text[: longest * 2]
    kept = "".join(letter for letter in short if letter in _KEPT or unicodedata.category(letter)[0] != "C").strip()
    if len(kept) <= longest and len(text) == len(short):
        return kept
    return f"{kept[:longest].rstrip()} [… cut]"


def readable(text: str) -> str:
    """Return text that every encoding can hold."""
    return text.encode("utf-8", "replace").decode()
