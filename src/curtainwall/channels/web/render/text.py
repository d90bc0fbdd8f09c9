"""Texts on a page: markdown as HTML with no markup of its own, and long words cut to what a browser can lay out."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from curtainwall.channels.plain import plain, plain_line

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


LONGEST = 60_000
"""Characters of one message that are shown; the rest is stated as cut."""

_DEEPEST = 20
_LOWEST = 6


def as_html(text: str) -> Markup:
    """Return a message as HTML that holds nothing but our own elements; a cut is stated."""
    reader = _reader()
    tokens = list(_tamed(reader.parse(plain(cut(text, LONGEST)))))
    return Markup(reader.renderer.render(tokens, reader.options, {}))  # noqa: S704 - the renderer escapes whatever it did not make itself


@cache
def _reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": _DEEPEST})
    return reader.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline", "entity"])


def _tamed(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the same with headings below those of the page, code without the language it claims, and links that open elsewhere."""
    leads = ""
    for token in tokens:
        if token.children:
            token.children = list(_tamed(token.children))
        match token.type:
            case "heading_open" | "heading_close":
                token.tag = f"h{min(int(token.tag[1:]) + 3, _LOWEST)}"
            case "fence":
                token.info = ""
            case "link_open":
                leads = _host(str(token.attrGet("href") or ""))
                token.attrs = {"href": token.attrs["href"], "target": "_blank", "rel": "noopener noreferrer nofollow"} if leads else {}
                token.tag = "a" if leads else "span"
            case "link_close":
                token.tag = "a" if leads else "span"
                yield token
                if leads:
                    yield Token("text", "", 0, content=f" ({plain_line(leads, 80)})")
                continue
            case _:
                pass
        yield token


def _host(href: str) -> str:
    """Return where an address leads, nothing for one that is no page of the web."""
    try:
        told = urlsplit(href)
    except ValueError:
        return ""
    return told.netloc if told.scheme in ("http", "https") else ""
