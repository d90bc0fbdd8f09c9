"""Heads of answers: read as they are, or not at all."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.egress.refusals import Broke, Refused
from curtainwall.egress.upstream.http1 import request_head, request_start, take_head


def test_a_head_is_taken_when_it_is_whole_and_not_before() -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Type:  a/b \r\nX-Empty:\r\n\r\n"
    for cut in range(len(whole)):
        assert take_head(whole[:cut]) is None
    found = take_head(whole + b"rest")
    assert found is not None
    assert (found[0].status, found[0].headers, found[0].stays, found[1]) == (
        200,
        [(b"content-type", b"a/b"), (b"x-empty", b"")],
        True,
        b"rest",
    )


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 200 OK\r\nConnection: Close",
        b"HTTP/1.1 200\r\nconnection: x, close",
        b"HTTP/1.1 200\r\nconnection: close\r\nconnection: keep-alive",
    ],
)
def test_what_says_that_it_closes_does_not_stay(head: bytes) -> None:
    found = take_head(head + b"\r\n\r\n")
    assert found is not None
    assert not found[0].stays


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/2 200 OK",
        b"HTTP/1.1 999 OK",
        b"HTTP/1.1 20 OK",
        b"ICY 200 OK",
        b"",
        b"HTTP/1.1 200 OK\r\nno colon",
        b"HTTP/1.1 200 OK\r\n folded: x",
        b"HTTP/1.1 200 OK\r\na b: x",
        b"HTTP/1.1 200 OK\r\na : x",
        b"HTTP/1.1 200 OK\r\na: x\ny: z",
        b"HTTP/1.1 200 OK\r\na: \x00",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\ncontent-length: 2",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1, 1",
        b"HTTP/1.1 200 OK\r\ncontent-length: +1",
        b"HTTP/1.1 200 OK" + b"\r\na: b" * 300,
    ],
)
def test_what_is_no_head_breaks_the_reply(head: bytes) -> None:
    with pytest.raises(Broke):
        take_head(head + b"\r\n\r\n")


def test_a_head_without_end_is_not_kept() -> None:
    with pytest.raises(Broke, match="without end"):
        take_head(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000)


@given(st.binary(max_size=300))
def test_whatever_a_provider_says_is_a_head_or_breaks(data: bytes) -> None:
    with suppress(Broke):
        take_head(b"HTTP/1.1 200 OK\r\n" + data + b"\r\n\r\n")


@pytest.mark.parametrize("evil", [b"x\r\nevil: y", b"x\n", b"\rx"])
def test_no_part_of_a_request_can_hold_a_line_end(evil: bytes) -> None:
    start = request_start("GET", "/a", [(b"host", b"x"), (b"b", b"c")])
    assert start == b"GET /a HTTP/1.1\r\nhost: x\r\nb: c"
    assert request_head(start, [(b"key", b"k"), (b"a", b"b")]) == start + b"\r\nkey: k\r\na: b\r\n\r\n"
    with pytest.raises(Refused):
        request_start("GET", "/a", [(b"host", evil)])
    with pytest.raises(Broke):
        request_head(start, [(b"key", evil), (b"a", b"b")])
