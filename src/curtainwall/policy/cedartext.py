"""Cedar text from foreign words: whatever a string holds, it stays inside its quotes."""

from collections.abc import Sequence

WILDCARD = None
"""Stands in a pattern for any text, the empty one included."""

Pattern = Sequence[str | None]

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-./:,;=@+%&#~^!?<>()[]{}|$'*")


def literal(text: str) -> str:
    """Return a string literal that means exactly this text; half characters have no literal and raise ValueError."""
    return f'"{_escaped(text)}"'


def pattern(parts: Pattern) -> str:
    """Return a `like` pattern: texts mean themselves, a star in one included; wildcards stand between them."""
    # An escape holds no star, so every star that is left is one of the text's own.
    return '"' + "".join("*" if part is None else _escaped(part).replace("*", r"\*") for part in parts) + '"'


def any_of(conditions: Sequence[str]) -> str:
    """Return the disjunction of conditions as a balanced tree, so that a long list does not nest deeply; of none it is false."""
    if len(conditions) < 2:
        return conditions[0] if conditions else "false"
    middle = len(conditions) // 2
    return f"({any_of(conditions[:middle])} || {any_of(conditions[middle:])})"


def _escaped(text: str) -> str:
    return "".join(letter if letter in _PLAIN else _code(letter) for letter in text)


def _code(letter: str) -> str:
    if "\ud800" <= letter <= "\udfff":
        raise ValueError("half a character cannot be written")
    return f"\\u{{{ord(letter):x}}}"
