"""An agent's markdown as HTML: no markup of its own, no pictures, and links that say where they lead."""

from collections.abc import Sequence
from functools import cache
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape

from curtainwall.channels.plain import plain, plain_line

LONGEST = 60_000
"""Characters of one message that are shown; the rest is stated as cut."""

_DEEPEST = 20


def as_html(text: str) -> Markup:
    """Return a message as HTML that holds nothing but our own elements; a cut is stated."""
    cut = len(text) - LONGEST
    shown = plain(text[:LONGEST] if cut > 0 else text)
    html = Markup(_reader().render(shown))  # noqa: S704 - the reader escapes whatever it did not make itself
    return html + Markup('<p class="cut">… {} more characters are not shown</p>').format(f"{cut:,}") if cut > 0 else html


@cache
def _reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": _DEEPEST}, renderer_cls=_Renderer)
    return reader.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline", "entity"])


class _Renderer(RendererHTML):
    def link_open(self, tokens: Sequence[Token], idx: int, _options: OptionsDict, _env: EnvType) -> str:
        """Open a link in a window of its own that learns nothing of us; only http and https are links at all."""
        href = str(tokens[idx].attrGet("href") or "")
        if not _is_web(href):
            return "<span>"
        return f'<a href="{escape(href)}" target="_blank" rel="noopener noreferrer nofollow">'

    def link_close(self, tokens: Sequence[Token], idx: int, _options: OptionsDict, _env: EnvType) -> str:
        """Close a link and say which host it leads to, whatever its text claims."""
        opened = next((tokens[place] for place in range(idx, -1, -1) if tokens[place].type == "link_open"), None)
        href = str(opened.attrGet("href") or "") if opened else ""
        if not _is_web(href):
            return "</span>"
        return f'</a> <span class="leads">({escape(plain_line(urlsplit(href).netloc, 80))})</span>'

    def heading_open(self, tokens: Sequence[Token], idx: int, _options: OptionsDict, _env: EnvType) -> str:
        """Let an agent's headings stand below those of the page."""
        return f"<h{min(int(tokens[idx].tag[1:]) + 3, 6)}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, _options: OptionsDict, _env: EnvType) -> str:
        """Close a heading as it was opened."""
        return f"</h{min(int(tokens[idx].tag[1:]) + 3, 6)}>\n"

    def fence(self, tokens: Sequence[Token], idx: int, _options: OptionsDict, _env: EnvType) -> str:
        """Show code as it is; the language that it claims is left out."""
        return f"<pre><code>{escape(tokens[idx].content)}</code></pre>\n"


def _is_web(href: str) -> bool:
    try:
        told = urlsplit(href)
    except ValueError:
        return False
    return told.scheme in ("http", "https") and bool(told.netloc)
