"""The quick reading of heads: it says what h11 says, or nothing at all."""

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curtainwall.egress.requests import PlainHead, plain_head
from tests.support.covers import covers

USUAL = b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: api.anthropic.com\r\nX-Api-Key: sk-1\r\ncontent-length: 5\r\n\r\nhello"
LENGTH_AT = USUAL.index(b"5\r\n\r\n")
PIECES = st.sampled_from(
    b"POST|GET|CONNECT|PUT| |/|/v1/messages|HTTP/1.1|HTTP/1.0|\r\n|\n|\r|\r\n\r\n|host|Host|:|: | : |x|content-length|5|05|+5".split(b"|")
    + b"5, 5|-1|1_0|\t|\x00|\x7f|\xff|transfer-encoding: chunked\r\n|content-length: 5\r\n|host: a\r\n|x: y\r\n|x:y\r\n".split(b"|")
    + b"x: \r\n|x: y \r\n|connection: close\r\n|connection: keep-alive\r\n|Connection: Keep-Alive\r\n|expect: 100-continue\r\n".split(b"|")
)


def by_h11(data: bytes) -> h11.Request | None:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    return event if isinstance(event, h11.Request) else None


def test_what_clients_usually_send_is_plain() -> None:
    found = plain_head(USUAL, 10_000)
    assert found == PlainHead(
        "POST",
        "/v1/messages?beta=true",
        [(b"host", b"api.anthropic.com"), (b"x-api-key", b"sk-1"), (b"content-length", b"5")],
        frozenset((b"host", b"x-api-key", b"content-length")),
        5,
        len(USUAL) - 5,
    )
    assert plain_head(USUAL.replace(b"\r\ncontent", b"\r\nConnection: Keep-Alive\r\ncontent"), 10_000) is not None
    assert plain_head(USUAL[:-6], 10_000) is None, "a head that is not whole"
    assert plain_head(USUAL, 60) is None, "a head that is too big"


@given(
    parts=st.lists(st.one_of(PIECES, st.binary(max_size=3)), max_size=14),
    at=st.integers(0, len(USUAL)),
    until=st.integers(0, 6),
    whole=st.booleans(),
)
@covers("egress.bodies-strict")
def test_what_is_read_quickly_is_what_h11_reads(parts: list[bytes], at: int, until: int, whole: bool) -> None:
    mixed = b"".join(parts)
    data = mixed if whole else USUAL[:at] + mixed + USUAL[at + until :]
    found = plain_head(data, 10_000)
    if found is None:
        return
    told = by_h11(data)
    assert told is not None, "h11 refuses it"
    assert (told.method.decode(), told.target.decode(), told.http_version) == (found.method, found.target, b"1.1")
    assert [(bytes(name), bytes(value)) for name, value in told.headers] == found.headers
    lengths = [int(value) for name, value in told.headers if name == b"content-length"]
    assert (lengths or [0]) == [found.length]
    assert data[: found.end].endswith(b"\r\n\r\n")


@given(
    parts=st.lists(st.one_of(PIECES, st.sampled_from([b"7", b"0", b"007", b"123456789012345", b"1234567890123456"])), max_size=4),
    at=st.one_of(st.integers(0, len(USUAL)), st.integers(LENGTH_AT - 4, LENGTH_AT + 6)),
    until=st.integers(0, 4),
    most=st.sampled_from([10_000, len(USUAL) - 5, len(USUAL) - 6]),
)
@example(parts=[b"123456789012345"], at=LENGTH_AT, until=1, most=10_000)
@example(parts=[b"7"], at=LENGTH_AT, until=1, most=len(USUAL) - 5)
@covers("egress.bodies-strict")
def test_a_head_that_is_the_same_again_is_what_it_would_be_by_itself(parts: list[bytes], at: int, until: int, most: int) -> None:
    usual = plain_head(USUAL, 10_000)
    assert usual is not None
    shape = usual.shape(USUAL)
    assert shape is not None
    data = USUAL[:at] + b"".join(parts) + USUAL[at + until :]
    again, alone = shape.again(data, most), plain_head(data, most)
    if again is not None:
        assert alone is not None
        assert again == (alone.length, alone.end)
        assert (alone.method, alone.target) == (usual.method, usual.target)
        assert alone.headers == [*usual.headers[:-1], (b"content-length", b"%d" % alone.length)]


def test_the_same_head_with_another_length_is_the_same_again_and_nothing_else_is() -> None:
    found = plain_head(USUAL, 10_000)
    assert found is not None
    shape = found.shape(USUAL)
    assert shape is not None
    assert shape.again(USUAL, 10_000) == (5, found.end)
    assert shape.again(USUAL.replace(b": 5", b": 123456"), 10_000) == (123456, found.end + 5)
    assert shape.again(USUAL.replace(b"sk-1", b"sk-2"), 10_000) is None
    assert shape.again(USUAL[:-6], 10_000) is None, "a head that is not whole"
    for neither in (b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", USUAL.replace(b"sk-1", b"k" * 9_000)):
        other = plain_head(neither, 10_000)
        assert other is not None
        assert other.shape(neither) is None, "one without a length, or a long one, is not kept"


NOT_PLAIN = {
    "two lengths": b"content-length: 5\r\ncontent-length: 5\r\n",
    "a list of lengths": b"content-length: 5, 5\r\n",
    "a length with a sign": b"content-length: +5\r\n",
    "a length with a zero before": b"content-length: 05\r\n",
    "chunks": b"transfer-encoding: chunked\r\n",
    "chunks in capitals": b"Transfer-Encoding: chunked\r\n",
    "a question first": b"expect: 100-continue\r\n",
    "another protocol": b"upgrade: h2c\r\n",
    "an end": b"connection: close\r\n",
    "an end after all": b"connection: keep-alive, close\r\n",
    "a header for this hop alone": b"connection: keep-alive, x-api-key\r\n",
    "a folded line": b"x: y\r\n z: 1\r\n",
    "a space before the colon": b"content-length : 5\r\n",
    "a line that ends alone": b"x: y\ncontent-length: 5\r\n",
    "a NUL": b"x: a\x00b\r\n",
    "a second host": b"host: b\r\n",
}


@pytest.mark.parametrize("lines", NOT_PLAIN.values(), ids=NOT_PLAIN)
@covers("egress.bodies-strict")
def test_whatever_could_be_read_in_two_ways_is_not_read_quickly(lines: bytes) -> None:
    assert plain_head(b"POST / HTTP/1.1\r\nhost: a\r\n" + lines + b"\r\n", 10_000) is None
