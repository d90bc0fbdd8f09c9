"""Renders markdown, cards and lines as styled text, without anything untrusted that a terminal would obey."""

import io
from collections.abc import Iterable, Mapping
from functools import cache
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment, Segments
from rich.text import Text

from curtainwall.channels.asks.cards import CardLine, Kind
from curtainwall.channels.asks.event_lines import EventLine, Tone
from curtainwall.channels.plain import hanging_rows, plain, rows
from curtainwall.model import record

AGENT_MARGIN: Final = "┊ "
"""Precedes each row of the agent's text, so that none of it passes for a card or a question."""

_NARROW = 4
_NEW_LINE = "\n"
_KINDS: Mapping[Kind, str] = {
    "head": "bold",
    "rule": "",
    "argument": "",
    "title": "dim",
    "added": "green",
    "removed": "red",
    "place": "cyan",
    "note": "yellow",
}
_TONES: Mapping[Tone, str] = {"dim": "dim", "good": "green", "warn": "yellow", "bad": "red"}


class _Title(Heading):
    """A left-aligned heading."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Text(Markdown):
    """Markdown that hides nothing: HTML, images and link references are shown as written."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Title}

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False, code_theme="ansi_dark", inline_code_theme="ansi_dark")
        self.markup, self.parsed = text, _parser().parse(text)


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt().enable(["strikethrough", "table"]).disable(["html_block", "html_inline", "image", "reference"])


@record
class Renderer:
    """A width, and whether to use colours; bold and dim do not count as colours."""

    width: int
    colour: bool

    def markdown(self, text: str) -> str:
        """Return the agent's text as rendered markdown, behind its margin; links show their targets."""
        return self._behind_margin(self._render(_Text(plain(text)), self._inside.width).strip(_NEW_LINE))

    def quoted(self, text: str, style: str = "") -> str:
        """Return the agent's text as written, behind its margin."""
        return self._behind_margin(self._inside.line(text, style).removesuffix(_NEW_LINE))

    def line(self, text: str, style: str = "") -> str:
        """Return text of one or more lines in one style; nothing in it is markup."""
        return self._render(Text(plain(text), style=style, overflow="fold"))

    def rows(self, text: str, style: str = "") -> str:
        """Return text in one style, each line wrapped into rows that do not pass for separate lines."""
        return "".join(self.line(row, style) for line in plain(text).split("\n") for row in rows(line, max(self.width, _NARROW)))

    def item(self, text: str, style: str = "") -> str:
        """Return a list line in one style; what does not fit continues below its last column."""
        return "".join(self.line(row, style) for line in plain(text).split("\n") for row in hanging_rows(line, max(self.width, _NARROW)))

    def event_line(self, line: EventLine) -> str:
        """Return an event's line in its tone."""
        return self.rows(line.text, _TONES[line.tone])

    def human(self, text: str, by: str = "") -> str:
        """Return what a human said."""
        head = f"{by}: " if by else ""
        lines = plain(f"{head}{text}").split("\n")
        return "".join(self.line(f"> {row}", "bold cyan") for line in lines for row in rows(line, self._inside.width))

    def card(self, lines: Iterable[CardLine]) -> str:
        """Return an approval card with a bar at its side, so that nothing in it passes for the rest of the screen."""
        output: list[str] = []
        inside = self._inside
        bar = self.line("┃", "yellow").removesuffix("\n")
        for line in lines:
            wrapped = rows(plain(line.text).replace("\n", " "), inside.width)
            output += [f"{bar} {inside.line(row, _KINDS[line.kind])}" for row in wrapped]
        return "".join(output)

    @property
    def _inside(self) -> "Renderer":
        """The same renderer with room for a margin."""
        return Renderer(max(self.width - len(AGENT_MARGIN), _NARROW), self.colour)

    def _behind_margin(self, text: str) -> str:
        margin = self.line(AGENT_MARGIN.rstrip(), "dim").removesuffix(_NEW_LINE)
        return "".join(f"{margin} {row}\n" if row else f"{margin}\n" for row in text.split(_NEW_LINE))

    def _render(self, what: RenderableType, width: int | None = None) -> str:
        console = Console(
            file=io.StringIO(),
            width=max(width or self.width, _NARROW),
            force_terminal=True,
            color_system="standard",
            no_color=not self.colour,
            markup=False,
            emoji=False,
            highlight=False,
            legacy_windows=False,
        )
        rows = Segment.split_lines(console.render(what))
        with console.capture() as captured:
            console.print(Segments(segment for row in rows for segment in (*_trimmed(row), Segment.line())), end="", soft_wrap=True)
        return captured.get()


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Return a line without the blanks that only fill it, and with escapes for control characters (an entity may hide them)."""
    segments = [Segment(plain(segment.text), segment.style) for segment in line if not segment.control]
    while (
        segments
        and not segments[-1].text.strip()
        and not (segments[-1].style and (segments[-1].style.bgcolor or segments[-1].style.reverse))
    ):
        segments.pop()
    if segments and not (segments[-1].style and segments[-1].style.bgcolor):
        segments[-1] = Segment(segments[-1].text.rstrip(), segments[-1].style)
    return segments
