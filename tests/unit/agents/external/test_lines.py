"""Lines out of pieces, and what a line without an end costs."""

import time

from hypothesis import given as for_all
from hypothesis import strategies as st

from curtainwall.agents.external import LineSplitter
from tests.support.covers import covers


@for_all(st.lists(st.binary(max_size=8).map(lambda piece: piece.replace(b"\x00", b"\n"))))
def test_lines_are_the_same_however_they_are_cut_into_pieces(pieces: list[bytes]) -> None:
    lines = LineSplitter(1_000)
    told = [line for piece in pieces for line in lines.feed(piece)]
    assert [*told, lines.rest()] == b"".join(pieces).split(b"\n")
    assert lines.rest() == b""


def test_of_a_line_that_is_too_long_the_beginning_is_kept_and_the_next_one_is_whole() -> None:
    lines = LineSplitter(4)
    assert lines.feed(b"abc") == []
    assert lines.feed(b"def") == []
    assert lines.feed(b"ghi\njk\nlm") == [b"abcd", b"jk"]
    assert lines.rest() == b"lm"


@covers("foreign.lines-without-end")
def test_a_line_without_an_end_costs_no_more_than_its_pieces() -> None:
    lines, piece = LineSplitter(16 * 1024**2), b"x" * 16 * 1024
    began = time.process_time()
    for _ in range(20_000):
        assert lines.feed(piece) == []
    assert time.process_time() - began < 10, "to copy what is kept with every piece would take a minute"
    assert len(lines.rest()) == 16 * 1024**2
