"""Letters from right to left: found in every script that has them, and escaped without touching the others."""

import pytest

from curtainwall.model import has_leftward, in_order


@pytest.mark.parametrize("text", ["", "plain", "naïve Straße", "日本語", "файл", "नमस्ते", "😀", "\\u05d0", "e\u0301"])
def test_what_goes_from_left_to_right_stays_as_it_is(text: str) -> None:
    assert not has_leftward(text)
    assert in_order(text) == text


@pytest.mark.parametrize("letter", ["\u05d0", "\u0627", "\u0660", "\u07ca", "\u0710", "\U0001e900", "\u200f"])
def test_what_goes_from_right_to_left_is_escaped_where_it_stands(letter: str) -> None:
    assert has_leftward(f"a{letter}")
    assert in_order(f"a{letter}1ü") == f"a{letter.encode('unicode_escape').decode()}1ü"
