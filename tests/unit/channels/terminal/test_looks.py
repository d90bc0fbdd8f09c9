"""What is drawn: styles are ours, text is theirs, and nothing of theirs is a style."""

import io
import re

import pytest

from curtainwall.channels.asks.cards import CardLine
from curtainwall.channels.asks.event_lines import EventLine
from curtainwall.channels.terminal import wants_colour
from curtainwall.channels.terminal.renderer import Renderer
from tests.support.covers import covers
from tests.unit.channels.text.test_plain import ATTACKS

OURS = re.compile(r"\x1b\[[0-9;]*m")
COLOURS = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7])(?:;[0-9;]*)?m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn_ways(looks: Renderer, text: str) -> list[str]:
    card = looks.card([CardLine("added", text), CardLine("head", text)])
    told = EventLine("bad", text)
    return [looks.markdown(text), looks.quoted(text), looks.line(text), looks.human(text, text), looks.event_line(told), card]


@covers("terminal.inert")
@pytest.mark.parametrize(
    "attack", [*ATTACKS, "&#27;[2J", "&#x202e;evil", "&#8203;hidden", "`\x1b[2J`", "```\n\x1b[2J\n```", "[a](\x1b[2J)"], ids=ascii
)
@pytest.mark.parametrize("colour", [True, False])
def test_no_escape_of_others_reaches_the_terminal(attack: str, colour: bool) -> None:
    for drawn in drawn_ways(Renderer(60, colour), f"before {attack} after"):
        rest = OURS.sub("", drawn)
        assert all(letter.isprintable() or letter == "\n" for letter in rest), ascii(rest)


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[link=https://evil.example]x[/link]", ":warning:", "[red]"])
def test_markup_is_text(text: str) -> None:
    for drawn in drawn_ways(Renderer(80, True), text):
        assert text in OURS.sub("", drawn)


def test_a_link_shows_where_it_leads() -> None:
    assert "https://evil.example" in Renderer(80, True).markdown("[https://good.example](https://evil.example)")


@pytest.mark.parametrize(
    ("line", "drawn"),
    [
        ("/quit  leave; open asks stay where they are", "/quit  leave; open asks\n       stay where they\n       are\n"),
        ("active   ask     a: b c d e f g h i j k l m n", "active   ask     a: b c\n         d e f g h i j k\n         l m n\n"),
        ("/exit                     the same as /quit is", "/exit  the same as /quit\n  is\n"),
        ("  to change it: mode `accept-edits`", "  to change it: mode\n    `accept-edits`\n"),
        ("plain words that do not fit here", "plain words that do not\n  fit here\n"),
        ("it is /tmp/a/path/of/some", "it is\n  /tmp/a/path/of/some\n"),
        ("  /tmp/a/path/that/is/too/long", "  /tmp/a/path/that/is/to\n    o/long\n"),
        ("short", "short\n"),
    ],
)
def test_a_line_of_a_list_goes_on_below_its_last_column_that_leaves_room(line: str, drawn: str) -> None:
    assert Renderer(24, False).item(line) == drawn


def test_markdown_is_drawn() -> None:
    drawn = Renderer(80, True).markdown("# Title\n\n* **one**\n* two\n\n```python\nx = 1\n```")
    plain = OURS.sub("", drawn)
    assert "**" not in plain
    assert "```" not in plain
    assert "• one" in plain
    assert "x = 1" in plain


@covers("terminal.colours")
def test_without_colour_nothing_is_coloured() -> None:
    text = "# T\n\n`code` **bold**\n\n```python\nx = 'a'\n```"
    assert COLOURS.search(Renderer(80, True).markdown(text))
    for drawn in drawn_ways(Renderer(80, False), text):
        assert not COLOURS.search(drawn)


@covers("terminal.colours")
@pytest.mark.parametrize(
    ("stream", "environ", "wanted"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colours_are_for_terminals_whose_user_wants_them(stream: io.StringIO, environ: dict[str, str], wanted: bool) -> None:
    assert wants_colour(stream, environ) is wanted


@pytest.mark.parametrize("width", [10, 20, 40])
def test_a_narrow_terminal_is_not_overrun(width: int) -> None:
    text = "a word and averyveryverylongwordthatdoesnotfit and more\n\n* item item item item"
    for drawn in drawn_ways(Renderer(width, True), text):
        assert max(len(row) for row in OURS.sub("", drawn).splitlines()) <= width


def test_every_row_of_a_card_has_its_bar() -> None:
    drawn = OURS.sub("", Renderer(20, True).card([CardLine("argument", "x" * 70), CardLine("argument", "a\nb")]))
    assert all(row.startswith("┃ ") for row in drawn.splitlines())


@covers("terminal.no-imitation")
@pytest.mark.parametrize(
    "text", ["┃ tool: x\n\nabc234? y once", "```\n┃ tool: x\n\nabc234? y once\n```", "x" * 70 + " y once", "字" * 70, "", "\n"]
)
@pytest.mark.parametrize("width", [10, 20, 60])
def test_every_row_of_the_agents_words_has_its_margin(text: str, width: int) -> None:
    for drawn in (Renderer(width, True).markdown(text), Renderer(width, False).quoted(text)):
        assert all(row == "┊" or row.startswith("┊ ") for row in OURS.sub("", drawn).splitlines())
