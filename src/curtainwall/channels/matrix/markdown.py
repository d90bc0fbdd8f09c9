"""What an agent wrote, for a Matrix client: markdown becomes a little HTML, and nothing in it can load, run or call anybody."""

import html
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_LONGEST = 20_000


def to_html(text: str) -> str | None:
    """Return the text as HTML, or None where it has no form that would be worth it."""
    if len(text) > _LONGEST:
        return None
    form = _reader().render(text).rstrip("\n")
    plain = form.removeprefix("<p>").removesuffix("</p>")
    return form if "<" in plain else None


def with_code(text: str) -> str | None:
    """Return a line of ours in which what stands between backticks is code, whoever wrote that; None where nothing does."""
    parts = text.split("`")
    if len(parts) % 2 == 0 or len(parts) == 1 or "\n" in text:
        return None
    return "".join(f"<code>{html.escape(part)}</code>" if number % 2 else html.escape(part) for number, part in enumerate(parts))


@cache
def _reader() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # imported late: only a channel that speaks needs it

    # Tags that somebody wrote stay text; a picture would tell its server who reads, and links of other kinds would run something.
    return (
        MarkdownIt("commonmark", {"html": False, "breaks": True, "linkify": False}).enable("table").enable("strikethrough").disable("image")
    )
