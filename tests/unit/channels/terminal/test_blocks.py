"""Markdown is cut behind whole blocks only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.channels.terminal.output import whole_blocks


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", ""),
        ("one line", ""),
        ("one\n\n", ""),
        ("one\n\ntw", "one\n\n"),
        ("one\n\ntwo\n\nthree", "one\n\ntwo\n\n"),
        ("one\n\n  still the list item", ""),
        ("- a\n\n- b", "- a\n\n"),
        ("```\na\n\nb\n", ""),
        ("```\na\n\nb\n```\n\nc", "```\na\n\nb\n```\n\n"),
        ("~~~~\n```\n\nx\n~~~\n\ny", ""),
        ("one\n\n``", ""),
        ("one\n\n```py\nx = 1\n\ny", "one\n\n"),
        ("\n\n\none\n\ntwo", "\n\n\none\n\n"),
        ("``` not `a` fence\n\nafter", "``` not `a` fence\n\n"),
    ],
)
def test_only_whole_blocks_are_cut_off(text: str, whole: str) -> None:
    assert text[: whole_blocks(text)] == whole


@given(st.lists(st.sampled_from(["a", "\n", "```", " ", "- ", "`"]), max_size=40))
def test_what_was_whole_once_stays_whole(parts: list[str]) -> None:
    text = "".join(parts)
    before = 0
    for end in range(len(text) + 1):
        now = whole_blocks(text[:end])
        assert now >= before, (text[:end], now, before)
        before = now
