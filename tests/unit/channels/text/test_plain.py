"""Text of others is inert: nothing in it moves a cursor, hides, or passes for ours."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.channels.plain import GOES_ON, display_width, exact_rows, plain, plain_line, short
from curtainwall.session import inert
from tests.support.covers import covers

ATTACKS = [
    "\x1b[2J\x1b[1;1H",
    "\x1b]0;title\x07",
    "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "\x9b2J",
    "\x07\x08\x08\x7f",
    "over\rwritten",
    "right\u202eleft",
    "zero\u200bwidth",
    "line\u2028separator",
    "lone\ud800half",
]


@covers("terminal.inert")
@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
def test_what_a_terminal_would_follow_is_written_out(attack: str) -> None:
    shown = plain(f"before {attack} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert all(letter.isprintable() for letter in shown)


def test_lines_stay_lines_and_tabs_become_spaces() -> None:
    assert plain("a\r\n\tb\n") == "a\n    b\n"


def test_one_line_is_one_line() -> None:
    assert plain_line("a\nb\rc") == "a\\nb\\rc"
    assert "\n" not in short("a\n\n b\x1b", 20)


def test_a_long_line_says_that_it_is_cut() -> None:
    assert plain_line("x" * 100, 10) == "xxxxx …[90 characters cut]… xxxxx"
    assert short("x" * 100, 10) == "xxxxxxxxx…"


def test_pictures_and_accents_stay_readable() -> None:
    assert plain("naïve — ⚠️ \U0001f468\u200d\U0001f469 e\u0301") == "naïve — ⚠ \U0001f468\U0001f469 e\u0301"


def test_a_hidden_mark_behind_plain_letters_is_written_out() -> None:
    assert plain("pay\ufe0fload") == "pay\\ufe0fload"


@covers("terminal.inert-as-the-card")
def test_a_letter_is_shown_exactly_where_a_card_shows_it() -> None:
    differ = [hex(code) for code in range(sys.maxunicode + 1) if (plain_line(chr(code)) == chr(code)) != (inert(chr(code)) == chr(code))]
    assert differ == []


@given(st.text(st.characters(codec=None), max_size=60), st.integers(0, 60))
def test_nothing_unprintable_comes_through_wherever_a_text_is_split(text: str, at: int) -> None:
    for part in (text, text[:at], text[at:]):
        assert all(letter.isprintable() or letter == "\n" for letter in plain(part))
        assert all(letter.isprintable() for letter in plain_line(part))


@given(st.text(st.sampled_from("ab  é世"), max_size=60), st.integers(8, 30))
def test_rows_that_are_exact_lose_no_blank_and_fit(line: str, width: int) -> None:
    found = exact_rows(line, width)
    assert "".join(row.removeprefix(GOES_ON) if place else row for place, row in enumerate(found)) == line
    assert all(display_width(row) <= width for row in found)
    assert all(row.startswith(GOES_ON) for row in found[1:])
