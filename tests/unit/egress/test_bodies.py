"""Bodies: what parsers read differently is refused, and what is small as text and big when parsed is refused before it is parsed."""

import asyncio
import time

import pytest

from curtainwall.egress import EgressBounds
from curtainwall.egress.bodies import parse_body, render_body
from curtainwall.egress.refusals import Refused
from tests.support.covers import covers

BOUNDS = EgressBounds()

BAD: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"hello",
    "a list": b"[]",
    "a text": b'"x"',
    "a key twice": b'{"model":"a","model":"b"}',
    "a key twice, deep inside": b'{"a":[{"b":{"c":1,"\\u0063":2}}]}',
    "not a number": b'{"a":NaN}',
    "without end": b'{"a":-Infinity}',
    "a comment": b'{"a":1/**/}',
    "a comma too many": b'{"a":1,}',
    "two documents": b'{"a":1}{"a":2}',
    "a mark of byte order": b'\xef\xbb\xbf{"a":1}',
    "another encoding": '{"a":1}'.encode("utf-16"),
    "no UTF-8": b'{"a":"\xff"}',
    "a control character": b'{"a":"\x00"}',
    "too deep": b'{"a":' + b"[" * 150 + b"]" * 150 + b"}",
    "far too deep": b'{"a":' * 100_000,
    "a number without end": b'{"a":' + b"9" * 100_000 + b"}",
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
@covers("egress.bodies-strict")
def test_a_body_that_can_be_read_in_two_ways_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refusal:
        asyncio.run(parse_body(body, BOUNDS))
    assert refusal.value.status == 400


def test_a_bomb_is_refused_before_it_is_parsed() -> None:
    bomb = b'{"a":[' + b"[]," * 3_000_000 + b"1]}"
    began = time.process_time()
    with pytest.raises(Refused) as refusal:
        asyncio.run(parse_body(bomb, BOUNDS))
    assert refusal.value.status == 413
    assert time.process_time() - began < 3


def test_a_long_text_full_of_brackets_is_no_bomb() -> None:
    text = "[],{}" * 200_000
    body = render_body({"messages": [{"role": "user", "content": text}]})
    told = asyncio.run(parse_body(body, BOUNDS))
    assert told == {"messages": [{"role": "user", "content": text}]}


def test_what_is_written_again_says_the_same() -> None:
    told = {"a": 1, "b": [1.5, None, True, "ü\ud800\n"], "c": {"d": 10**30}}
    assert asyncio.run(parse_body(render_body(told), BOUNDS)) == told
