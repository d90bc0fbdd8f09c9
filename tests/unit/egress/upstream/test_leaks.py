"""The guard: a key in a reply is overwritten wherever it is cut, and nothing else waits longer than it must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.egress.upstream.relay import KeyRedactor

KEY = b"sk-ant-real"


@given(st.lists(st.sampled_from([b"s", b"sk-", b"sk-ant-", KEY, KEY[:5], KEY[3:], b" ", b"hello ", b"\n\n"]), max_size=30), st.data())
def test_no_cut_of_a_reply_lets_a_key_through(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    guard, passed = KeyRedactor([KEY]), b""
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        passed += guard.feed(whole[start:end])
    passed += guard.rest()
    assert KEY not in passed
    assert len(passed) == len(whole)
    assert passed == whole.replace(KEY, b"*" * len(KEY))


@pytest.mark.parametrize("before", [b"", b"it is "])
@pytest.mark.parametrize("cut", range(1, len(KEY)))
def test_a_key_that_comes_in_two_pieces_is_overwritten_wherever_they_meet(before: bytes, cut: int) -> None:
    guard = KeyRedactor([KEY])
    assert guard.feed(before + KEY[:cut]) == before
    assert guard.feed(KEY[cut:] + b".") == b"*" * len(KEY) + b"."


def test_what_cannot_be_the_beginning_of_a_key_passes_at_once() -> None:
    guard = KeyRedactor([KEY])
    assert guard.feed(b"data: yes\n\n") == b"data: yes\n\n"
    assert guard.feed(b"data: sk-an") == b"data: "
    assert guard.feed(b"t\n") == b"sk-ant\n"


def test_several_keys_are_looked_for_and_headers_that_hold_one_are_dropped() -> None:
    guard = KeyRedactor([b"first-key", b"second-key"])
    assert guard.feed(b"first-key second-key.") == b"********* **********."
    held, free = (b"x-echo", b"it is second-key"), (b"x-echo", b"it is not")
    assert guard.headers([free]) == [free]
    assert guard.headers([free, held]) == [free]
    assert guard.redacted == 3
    assert guard.headers([free, (b"second-key", b"its name is one")]) == [free]
