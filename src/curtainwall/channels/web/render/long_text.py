"""Long texts in a length that a page can hold: browsers take minutes to lay out one word of tens of thousands of letters."""

import re

_LONGEST_WORD = 1_200
_LONG_RUN = re.compile(rf"\S{{{_LONGEST_WORD},}}")
_HEAD, _TAIL = 400, 100


def cut(text: str, limit: int) -> str:
    """Return at most so much of a text, without words that no screen could show; every cut is stated."""
    shown = _LONG_RUN.sub(_shortened, text[:limit])
    return shown if len(text) <= limit else f"{shown}\n…[{len(text) - limit:,} more characters are not shown]"


def is_broken(text: str) -> bool:
    """Tell whether the end of a text is no word that no screen could show."""
    return len(text) < _LONGEST_WORD or any(letter.isspace() for letter in text[-_LONGEST_WORD:])


def _shortened(run: re.Match[str]) -> str:
    word = run[0]
    return f"{word[:_HEAD]} …[{len(word) - _HEAD - _TAIL:,} characters without a space are not shown]… {word[-_TAIL:]}"
