"""Tables in terminals of every breadth."""

from hypothesis import given
from hypothesis import strategies as st

from curtainwall.cli.screen import display_width, laid_out

HEADS = ("session", "changed", "name")
ROWS = [("1m7gsd7ykzy0r6cj", "2026-11-15 23:41:48 UTC", "a name of several words"), ("1m7gsd6fnysx9h1m", "2026-11-15 23:41:46 UTC", "")]
WORDS = st.text("abc日 ", max_size=60)


def table(room: int | None, heads: tuple[str, ...] = HEADS, rows: list[tuple[str, ...]] | None = None) -> list[str]:
    return laid_out(heads, ROWS if rows is None else rows, room, lambda head: head.upper()).split("\n")


def test_a_row_is_one_line_where_there_is_room_or_no_terminal() -> None:
    for room in (None, 200, 66):
        assert table(room) == [
            "SESSION           CHANGED                  NAME",
            "1m7gsd7ykzy0r6cj  2026-11-15 23:41:48 UTC  a name of several words",
            "1m7gsd6fnysx9h1m  2026-11-15 23:41:46 UTC",
        ]


def test_a_table_without_rows_is_its_heads() -> None:
    assert table(10, rows=[]) == ["SESSION  CHANGED  NAME"]
    assert table(10, rows=[("", "", "")]) == ["SESSION  CHANGED  NAME", ""]


def test_cells_are_folded_where_the_terminal_is_narrow() -> None:
    assert table(50) == [
        "SESSION           CHANGED          NAME",
        "1m7gsd7ykzy0r6cj  2026-11-15       a name of",
        "                  23:41:48 UTC     several words",
        "1m7gsd6fnysx9h1m  2026-11-15",
        "                  23:41:46 UTC",
    ]


def test_rows_become_paragraphs_where_folding_is_not_enough() -> None:
    assert table(36) == [
        "SESSION  1m7gsd7ykzy0r6cj",
        "CHANGED  2026-11-15 23:41:48 UTC",
        "NAME     a name of several words",
        "",
        "SESSION  1m7gsd6fnysx9h1m",
        "CHANGED  2026-11-15 23:41:46 UTC",
    ]
    path = "/home/ann/projects/shop/backend"
    assert table(34, rows=[("1", "now", path)]) == ["SESSION  1", "CHANGED  now", "NAME", f"  {path}"], "a long word has a line of its own"
    tall = table(40, ("rule", "says"), [("no-rule", "what no rule knows is refused " * 8)])
    assert tall[0] == "RULE  no-rule", "a tower of short lines is no table"


def test_wide_letters_do_not_push_what_stands_behind_them() -> None:
    lines = table(None, ("name", "is"), [("日本", "a"), ("abcd", "b")])
    assert lines[1:] == ["日本  a", "abcd  b"]


@given(st.lists(st.tuples(st.from_regex(r"[a-z0-9]{1,30}", fullmatch=True), WORDS, WORDS), min_size=1, max_size=5), st.integers(10, 120))
def test_no_word_is_ever_broken_and_only_a_long_one_is_too_broad(rows: list[tuple[str, str, str]], room: int) -> None:
    shown = laid_out(HEADS, rows, room, str)
    for word in (word for row in rows for cell in row for word in cell.split()):
        assert word in shown.split()
    for line in shown.split("\n"):
        longest = max((display_width(word) for word in line.split()), default=0)
        assert display_width(line.rstrip()) <= max(room, 2 + longest)
