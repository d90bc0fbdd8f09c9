"""JSON text in its one reading."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.facts import read_frame, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(st.sampled_from('a:"\\{}[],\n'), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c:d", 'e"f', "g\\", 'h"', ":i"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("{}", []),
        ('{"a": 1}', []),
        ('{"a": ":::", "b": "\\":\\\\"}', []),
        ('{"a": 1, "a": 1}', [("a",)]),
        ('{"a": 1, "\\u0061": 2}', [("a",)]),
        ('{"a": {"b": 1, "b": 2}, "a": 3}', [("a",)]),
        ('{"a": [{"b": 1}, {"b": 1, "c": {}, "b": 2, "b": 3}]}', [("a", 1, "b")]),
        ('{"a": 1, "a": {"b": 1, "b": 2}}', [("a",), ("a", "b")]),
        ('{"a": 1, "A": 2, "a ": 3}', []),
        ('{"": 1, "": 2}', [("",)]),
        ('{"a": 1, "a"\t:\r\n2}', [("a",)]),
        ('{"a\\\\": 1, "b": 2, "b": 3}', [("b",)]),
        ('{"a\\\\": 1, "a\\\\": 2}', [("a\\",)]),
        ('{"a\\"": 1, "b": ":", "c": "\\":"}', []),
    ],
)
def test_a_frame_says_which_keys_its_text_gives_twice(text: str, repeated: list[tuple[Any, ...]]) -> None:
    value, found = read_frame(text.encode())
    assert value == json.loads(text)
    assert list(found) == repeated


@given(VALUES, st.booleans())
def test_only_text_that_gives_a_key_twice_is_said_to(value: Any, ascii_only: bool) -> None:
    once = json.dumps(value, ensure_ascii=ascii_only).encode()
    found, repeated = read_frame(once)
    assert (found, list(repeated)) == (value, [])
    twice = b'{"x": %b, "y": [{"x": 1, "x": %b}]}' % (once, once)
    assert list(read_frame(twice)[1]) == [("y", 0, "x")]


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"a": NaN}', b'{"a": 1} {}', b"\xff", b'\xef\xbb\xbf{"a": 1}', b"[" * 1_000, b'{"a": "\\ud800:"}']
)
def test_what_is_no_json_is_no_frame(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the parser says
        read_frame(text)


def test_a_value_with_one_reading_is_read() -> None:
    assert read_json(' {"a": [1, 2.5, "x", null, true]} ') == {"a": [1, 2.5, "x", None, True]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "a": 1}', 'the key "a" is given twice'),
        ('[{"a": {"b": 1, "b": 1}}]', 'the key "b" is given twice'),
        ('{"a": NaN}', "`NaN` is not a JSON number"),
        ('{"a": -Infinity}', "`-Infinity` is not a JSON number"),
        ('{"a": 1e999}', "a number is too big"),
    ],
)
def test_a_value_with_two_readings_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_json(text)
