"""Texts on a page: markdown as HTML without foreign markup, and long words cut to what a browser can lay out."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from curtainwall.channels.plain import plain, plain_line
from curtainwall.host.extras import extra

with extra("web"):
    from markupsafe import Markup


_LONGEST_WORD = 1_200
_LONG_RUN = re.compile(rf"\S{{{_LONGEST_WORD},}}")
_HEAD, _TAIL = 400, 100


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, with overlong words shortened; every cut is stated."""
    shown = _LONG_RUN.sub(_shortened, text[:limit])
    return shown if len(text) <= limit else f"{shown}\n…[{len(text) - limit:,} more characters are not shown]"


def is_broken(text: str) -> bool:
    """Tell whether the end of a text is not an overlong word."""
    return len(text) < _LONGEST_WORD or any(letter.isspace() for letter in text[-_LONGEST_WORD:])


def _shortened(run: re.Match[str]) -> str:
    word = run[0]
    return f"{word[:_HEAD]} …[{len(word) - _HEAD - _TAIL:,} characters without a space are not shown]… {word[-_TAIL:]}"


LONGEST = 60_000
"""How many characters of a message are shown; the rest is stated as cut."""

_DEEPEST = 20
_LOWEST = 6


def as_html(text: str) -> Markup:
    """Return a message as HTML that holds only our own elements; a cut is stated."""
    parser = _parser()
    tokens = list(_restricted(parser.parse(plain(cut(text, LONGEST)))))
    return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704 - the renderer escapes everything that it did not make itself


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": _DEEPEST})
    return parser.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline", "entity"])


def _restricted(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the tokens with headings below those of the page, code without its claimed language, and links that open elsewhere."""
    host = ""
    for token in tokens:
        if token.children:
            token.children = list(_restricted(token.children))
        match token.type:
            case "heading_open" | "heading_close":
                token.tag = f"h{min(int(token.tag[1:]) + 3, _LOWEST)}"
            case "fence":
                token.info = ""
            case "link_open":
                host = _host(str(token.attrGet("href") or ""))
                token.attrs = {"href": token.attrs["href"], "target": "_blank", "rel": "noopener noreferrer nofollow"} if host else {}
                token.tag = "a" if host else "span"
            case "link_close":
                token.tag = "a" if host else "span"
                yield token
                if host:
                    yield Token("text", "", 0, content=f" ({plain_line(host, 80)})")
                continue
            case _:
                pass
        yield token


def _host(href: str) -> str:
    """Return the host that an address leads to; "" if it is not a web page."""
    try:
        parts = urlsplit(href)
    except ValueError:
        return ""
    return parts.netloc if parts.scheme in ("http", "https") else ""
