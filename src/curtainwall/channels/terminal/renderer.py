"""Markdown, cards and lines as text with styles, and nothing of others that a terminal would follow."""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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

AGENT_MARGIN: Final = "┊ "
"""Stands before each row of the agent's words, so that none of them passes for a card or a question."""

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
    """A heading at the left, where people begin to read."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Text(Markdown):
    """Markdown in which nothing is left out: HTML, pictures and the places that links are taken from are shown as they were written."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Title}

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False, code_theme="ansi_dark", inline_code_theme="ansi_dark")
        self.markup, self.parsed = text, _reader().parse(text)


@cache
def _reader() -> MarkdownIt:
    return MarkdownIt().enable(["strikethrough", "table"]).disable(["html_block", "html_inline", "image", "reference"])


@dataclass(frozen=True, slots=True)
class Renderer:
    """A width, and whether there are colours; bold and dim are no colours."""

    width: int
    colour: bool

    def markdown(self, text: str) -> str:
        """Return the agent's text as it is read, behind its margin; links show where they lead."""
        return self._behind_margin(self._drawn(_Text(plain(text)), self._inside.width).strip(_NEW_LINE))

    def quoted(self, text: str, style: str = "") -> str:
        """Return the agent's text as it was written, behind its margin."""
        return self._behind_margin(self._inside.line(text, style).removesuffix(_NEW_LINE))

    def line(self, text: str, style: str = "") -> str:
        """Return text of one or more lines in one style; nothing in it is markup."""
        return self._drawn(Text(plain(text), style=style, overflow="fold"))

    def rows(self, text: str, style: str = "") -> str:
        """Return text in one style, each line of it in rows that do not pass for lines of their own."""
        return "".join(self.line(row, style) for line in plain(text).split("\n") for row in rows(line, max(self.width, _NARROW)))

    def item(self, text: str, style: str = "") -> str:
        """Return a line of a list in one style; what does not fit goes on below its last column."""
        return "".join(self.line(row, style) for line in plain(text).split("\n") for row in hanging_rows(line, max(self.width, _NARROW)))

    def event_line(self, line: EventLine) -> str:
        """Return one told line in its tone."""
        return self.rows(line.text, _TONES[line.tone])

    def said(self, text: str, by: str = "") -> str:
        """Return what a human said."""
        head = f"{by}: " if by else ""
        lines = plain(f"{head}{text}").split("\n")
        return "".join(self.line(f"> {row}", "bold cyan") for line in lines for row in rows(line, self._inside.width))

    def card(self, lines: Iterable[CardLine]) -> str:
        """Return an approval card with a bar at its side, so that nothing in it passes for the rest of the screen."""
        drawn: list[str] = []
        inside = self._inside
        bar = self.line("┃", "yellow").removesuffix("\n")
        for line in lines:
            told = rows(plain(line.text).replace("\n", " "), inside.width)
            drawn += [f"{bar} {inside.line(row, _KINDS[line.kind])}" for row in told]
        return "".join(drawn)

    @property
    def _inside(self) -> "Renderer":
        """The same with room for a margin."""
        return Renderer(max(self.width - len(AGENT_MARGIN), _NARROW), self.colour)

    def _behind_margin(self, drawn: str) -> str:
        margin = self.line(AGENT_MARGIN.rstrip(), "dim").removesuffix(_NEW_LINE)
        return "".join(f"{margin} {row}\n" if row else f"{margin}\n" for row in drawn.split(_NEW_LINE))

    def _drawn(self, what: RenderableType, width: int | None = None) -> str:
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
    """Return a line without the blanks that only fill it up, and with nothing in it that a terminal follows (an entity may hide it)."""
    kept = [Segment(plain(segment.text), segment.style) for segment in line if not segment.control]
    while kept and not kept[-1].text.strip() and not (kept[-1].style and (kept[-1].style.bgcolor or kept[-1].style.reverse)):
        kept.pop()
    if kept and not (kept[-1].style and kept[-1].style.bgcolor):
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    return kept
