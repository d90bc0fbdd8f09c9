"""Where a reply ends, however it is cut on its way."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.egress.refusals import Broke
from curtainwall.egress.upstream.http1 import Framing, reply_framing

CHUNKED = [(b"transfer-encoding", b"chunked")]


def framed(status: int, headers: list[tuple[bytes, bytes]]) -> Framing:
    return reply_framing(status, headers, dict(headers))


def chunked(*pieces: bytes, trailer: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=12), st.data())
def test_chunks_say_the_same_however_they_are_cut(pieces: list[bytes], data: st.DataObject) -> None:
    whole = chunked(*pieces, trailer=data.draw(st.sampled_from([b"", b"a: b\r\n"])))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    framing, content = framed(200, CHUNKED), b""
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        assert not framing.done or start == end
        content += framing.feed(whole[start:end]) if start < end else b""
    assert (content, framing.done) == (b"".join(pieces), True)
    framing.ended(announced=True)


@given(st.binary(max_size=200))
def test_whatever_comes_is_content_or_breaks(data: bytes) -> None:
    framing = framed(200, CHUNKED)
    with suppress(Broke):
        assert len(framing.feed(data)) <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"x\r\n",
        b"-1\r\n",
        b"+1\r\na\r\n",
        b"0x1\r\n",
        b"1_0\r\n",
        b"\r\n",
        b" 1\r\n",
        b"1\r\nab\r\n",
        b"1" * 17 + b"\r\n",
        b"1" * 5000,
    ],
)
def test_chunks_that_are_none_break_the_reply(data: bytes) -> None:
    with pytest.raises(Broke):
        framed(200, CHUNKED).feed(data)


def test_an_extension_of_a_chunk_is_skipped() -> None:
    assert framed(200, CHUNKED).feed(b"5;a=b\r\nhello\r\n0\r\n\r\n") == b"hello"


def test_a_length_is_kept_to() -> None:
    framing = framed(200, [(b"content-length", b"5")])
    assert (framing.feed(b"hel"), framing.done) == (b"hel", False)
    with pytest.raises(Broke, match="hung up"):
        framing.ended(announced=True)
    assert (framing.feed(b"lo"), framing.done, framing.spoilt) == (b"lo", True, False)


@pytest.mark.parametrize(("headers", "data"), [([(b"content-length", b"5")], b"hello"), (CHUNKED, chunked(b"hello"))])
def test_what_comes_after_the_end_spoils_the_connection_and_is_no_content(headers: list[tuple[bytes, bytes]], data: bytes) -> None:
    framing = framed(200, headers)
    assert (framing.feed(data + b"HTTP/1.1 200 OK"), framing.done, framing.spoilt) == (b"hello", True, True)


def test_without_any_length_the_end_of_the_connection_is_the_end() -> None:
    framing = framed(200, [])
    assert (framing.feed(b"x"), framing.done, framing.length) == (b"x", False, None)
    framing.ended(announced=True)
    assert framing.done


def test_an_end_that_nobody_said_is_none_where_nothing_else_tells_the_end() -> None:
    framing = framed(200, [])
    framing.feed(b"x")
    with pytest.raises(Broke, match="hung up"):
        framing.ended(announced=False)


def test_some_answers_have_no_body_and_some_framings_are_not_known() -> None:
    assert framed(204, CHUNKED).done
    with pytest.raises(Broke):
        framed(200, [(b"transfer-encoding", b"gzip, chunked")])
    with pytest.raises(Broke):
        framed(200, [(b"transfer-encoding", b"gzip"), *CHUNKED])
