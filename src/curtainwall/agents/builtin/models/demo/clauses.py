"""An instruction as words: what stands in quotes is one word, and the rest comes apart where one wish may end and the next begin."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["text", "code", "url", "json"]

_STAND_IN: Final = 0xF0000  # the first of the characters that mean nothing to anyone else
_MOST_SPANS: Final = 60_000

_OPENER = re.compile(r"```|[`\"“‘«{\U000F0000-\U000FFFFD]|(?<![\w)])'|https?://", re.IGNORECASE)
_SPANS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("code", re.compile(r"```(?:\w*\n)?(?P<value>.*?)\n?```", re.DOTALL)),
    ("code", re.compile(r"`(?P<value>[^`\n]+)`")),
    ("text", re.compile(r'"(?P<value>(?:[^"\\]|\\.)*)"', re.DOTALL)),
    ("text", re.compile(r"“(?P<value>[^”]*)”")),
    ("text", re.compile(r"‘(?P<value>[^’]*)’")),
    ("text", re.compile(r"«(?P<value>[^»]*)»")),
    # An apostrophe inside a word does not end what a quote began.
    ("text", re.compile(r"'(?P<value>(?:[^'\\]|\\.|'(?=\w))*)'(?!\w)", re.DOTALL)),
    ("url", re.compile(r"(?P<value>https?://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]])", re.IGNORECASE)),
    ("text", re.compile(r"(?P<value>[\U000F0000-\U000FFFFD])")),
)
_ESCAPE = re.compile(r"\\([nt\"'\\])")
_ESCAPED: Final = {"n": "\n", "t": "\t"}
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+", re.MULTILINE)
_BETWEEN = re.compile(r"\s*;\s*|\s*\n\s*|(?<=\S)[.!?]+(?=\s|$)\s*|,?\s+(?:and\s+)?then\s+|,\s+(?:and\s+)?|\s+and\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class QuotedSpan:
    """What was quoted: as it was written, and what it means."""

    source: str
    value: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class ClauseWords:
    """An instruction in which one character stands for each span."""

    text: str
    spans: tuple[QuotedSpan, ...]

    def span(self, word: str) -> QuotedSpan | None:
        """Return the span that a word is, if it is one and nothing else."""
        at = ord(word) - _STAND_IN if len(word) == 1 else -1
        return self.spans[at] if 0 <= at < len(self.spans) else None

    def source(self, text: str) -> str:
        """Return words as the human wrote them."""
        return "".join(found.source if (found := self.span(letter)) else letter for letter in text)

    def fragments(self) -> list[tuple[int, int]]:
        """Return where the pieces are that may each be a wish of their own, or only a part of one."""
        found: list[tuple[int, int]] = []
        start = 0
        for gap in _BETWEEN.finditer(self.text):
            found.append((start, gap.start()))
            start = gap.end()
        found.append((start, len(self.text)))
        return [(first, last) for first, last in found if self.text[first:last].strip()]


def words_of(text: str) -> ClauseWords:
    """Return an instruction as words; bullets and numbers in front of lines are dropped."""
    spans: list[QuotedSpan] = []
    out: list[str] = []
    for piece in _parts(text):
        if isinstance(piece, str) or len(spans) >= _MOST_SPANS:
            out.append(piece if isinstance(piece, str) else piece.source)
        else:
            out.append(chr(_STAND_IN + len(spans)))
            spans.append(piece)
    plain = _BULLET.sub("", "".join(out))
    return ClauseWords(re.sub(r"[^\S\n]+", " ", plain).strip(), tuple(spans))


def _parts(text: str) -> Iterator[str | QuotedSpan]:
    at = 0
    while opener := _OPENER.search(text, at):
        span = _span_at(text, opener.start())
        end = opener.start() + len(span.source) if span else opener.end()
        yield text[at : opener.start()]
        yield span or opener.group()
        at = end
    yield text[at:]


def _span_at(text: str, at: int) -> QuotedSpan | None:
    if text[at] == "{":
        return _json_at(text, at)
    for kind, pattern in _SPANS:
        if found := pattern.match(text, at):
            value = found["value"]
            return QuotedSpan(found.group(), _ESCAPE.sub(_unescaped, value) if kind == "text" else value, kind)
    return None


def _json_at(text: str, at: int) -> QuotedSpan | None:
    try:
        _, end = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return QuotedSpan(text[at:end], text[at:end], "json")


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPED.get(found[1], found[1])
