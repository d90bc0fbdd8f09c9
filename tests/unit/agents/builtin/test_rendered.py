"""What a model is told of a program: its prints with a flood cut, its value, its fault."""

import pytest

from curtainwall.agents.builtin.program_output import PrintedOutput, read_json
from tests.support.covers import covers

DEEP = '{"a": ' * 300 + "1" + "}" * 300


def printed(*texts: str) -> PrintedOutput:
    prints = PrintedOutput()
    for text in texts:
        prints.take("stdout", text)
    return prints


def test_prints_come_out_as_they_went_in_and_end_their_line() -> None:
    assert printed().text == ""
    assert printed("a", "b\n", "c").text == "ab\nc\n"
    assert printed("a\n").text == "a\n"


@covers("agents.floods-are-cut")
def test_of_a_flood_the_beginning_and_the_end_are_kept_and_the_cut_is_counted() -> None:
    lines = [f"line {n}\n" for n in range(100_000)]
    text = printed(*lines).text
    assert len(text) < 45_000
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 99999\n")
    before, _, after = text.partition("\n…[")
    cut = int(after.partition(" ")[0])
    kept = after.partition("]…\n")[2]
    assert len(before) + cut + len(kept) == len("".join(lines))


def test_a_flood_in_one_piece_is_cut_as_well() -> None:
    assert len(printed("x" * 10_000_000).text) < 45_000


@pytest.mark.parametrize("before", ["", "half a line", "a line\n", "x" * 70_000])
def test_after_a_wait_prints_go_on_as_if_there_had_been_none(before: str) -> None:
    live = printed(before)
    restored = PrintedOutput()
    restored.restore(printed(before).saved)
    live.take("stdout", " and the rest\n")
    restored.take("stdout", " and the rest\n")
    assert restored.text == live.text


@pytest.mark.parametrize("text", ["NaN", '{"a": -Infinity}', "[", '{"a": 1' + "0" * 20 + "}", "[" * 100_000, "1" * 5_000, DEEP])
def test_what_cannot_be_sent_is_a_type_error_that_says_so(text: str) -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        read_json(text)


def test_what_can_be_sent_is_read_as_it_was_written() -> None:
    assert read_json('{"a": [1, 2.5, "ä", null, true]}') == {"a": [1, 2.5, "ä", None, True]}
