"""What a reply used, read from every dialect's stream however it is cut, and the one place where a stream is stopped."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtainwall.egress import CountedUsage, Dialect
from curtainwall.egress.refusals import Reason
from curtainwall.egress.upstream.usage import StreamUsage, WholeUsage
from curtainwall.model import Basis
from tests.support.covers import covers
from tests.support.dialects import STREAMS
from tests.support.egress import event, message


def nobody(_: CountedUsage) -> str | None:
    return None


@pytest.mark.parametrize("name", STREAMS)
@given(cuts=st.lists(st.integers(0, 5_000), max_size=12))
@covers("egress.usage-read")
def test_every_dialect_is_counted_however_its_stream_is_cut(name: str, cuts: list[int]) -> None:
    dialect, events, expected = STREAMS[name]
    whole = b"".join(events)
    places = sorted(min(cut, len(whole)) for cut in cuts)
    usage = StreamUsage(dialect, 400, nobody)
    for start, end in zip([0, *places], [*places, len(whole)], strict=True):
        assert usage.feed(whole[start:end]) == end - start
    assert usage.counted == expected
    assert usage.is_between_events


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_in_single_bytes_is_counted_the_same(name: str) -> None:
    dialect, events, expected = STREAMS[name]
    usage = StreamUsage(dialect, 400, nobody)
    for byte in b"".join(events):
        usage.feed(bytes([byte]))
    assert usage.counted == expected


def test_until_the_provider_counts_the_text_is_an_estimate_that_grows() -> None:
    told: list[CountedUsage] = []
    usage = StreamUsage(Dialect.ANTHROPIC, 4000, told.append)
    start, _, *rest = message("a" * 40, 'b"' * 20, "c" * 40, read=70, written=15)
    usage.feed(start)
    assert (usage.counted.input_tokens, usage.counted.output_tokens, usage.counted.usage().tokens_basis) == (70, 1, Basis.ESTIMATED)
    for piece in rest[:3]:
        usage.feed(piece)
    assert [each.output_tokens for each in told] == [1, 10, 25, 35]
    for piece in rest[3:]:
        usage.feed(piece)
    assert (usage.counted.output_tokens, usage.counted.usage().tokens_basis) == (15, Basis.MEASURED)


def test_the_input_is_estimated_from_the_request_until_it_is_counted() -> None:
    assert StreamUsage(Dialect.CHAT, 4001, nobody).counted.input_tokens == 1001


@pytest.mark.parametrize("cut", range(0, 1200, 37))
@covers("egress.stops-within-one-event")
def test_a_stop_lets_the_event_that_reached_it_pass_and_nothing_after(cut: int) -> None:
    events = message(*("word " * 8 for _ in range(6)), read=100, written=60)
    whole = b"".join(events)

    def most(counted: CountedUsage) -> str | None:
        return "enough" if counted.output_tokens >= 30 else None

    usage, passed = StreamUsage(Dialect.ANTHROPIC, 0, most), 0
    for piece in (whole[:cut], whole[cut:]):
        if usage.stopped is None:
            passed += usage.feed(piece)
    assert usage.stopped == "enough"
    assert passed == len(b"".join(events[:5])), "start, block start, and three pieces of ten tokens"


def test_words_in_the_text_that_look_like_counts_are_text() -> None:
    usage = StreamUsage(Dialect.ANTHROPIC, 0, nobody)
    lie = '"usage": {"output_tokens": 5, "input_tokens": 0}, "stop_reason": "x"}\n\ndata: {"usage": {"output_tokens": 1}}'
    for piece in message(lie, read=10, written=99):
        usage.feed(piece)
    assert usage.counted == CountedUsage(10, 99, 0, measured=True, model="claude-x", stop_reason="end_turn")


@pytest.mark.parametrize("count", [-5, 1.5, True, "7", None, [], 10**30])
def test_a_count_that_is_none_does_not_count(count: Any) -> None:
    usage = StreamUsage(Dialect.ANTHROPIC, 0, nobody)
    usage.feed(event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": count}))
    assert usage.counted.output_tokens in {0, 10**30}
    assert usage.counted.stop_reason == "end_turn"


def test_an_event_without_end_is_not_kept() -> None:
    usage = StreamUsage(Dialect.ANTHROPIC, 0, nobody)
    for _ in range(200):
        usage.feed(b"data: " + b"x" * 65_536)
    usage.feed(b"\n\n")
    for piece in message("hello", read=3, written=4):
        usage.feed(piece)
    assert usage.counted == CountedUsage(3, 4, 0, measured=True, model="claude-x", stop_reason="end_turn")


@pytest.mark.parametrize(
    ("dialect", "body", "expected"),
    [
        (
            Dialect.ANTHROPIC,
            {"model": "m", "stop_reason": "max_tokens", "usage": {"input_tokens": 5, "output_tokens": 6}},
            CountedUsage(5, 6, 0, measured=True, model="m", stop_reason="max_tokens"),
        ),
        (
            Dialect.RESPONSES,
            {
                "model": "m",
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "usage": {"input_tokens": 5, "output_tokens": 6},
            },
            CountedUsage(5, 6, 0, measured=True, model="m", stop_reason="max_output_tokens"),
        ),
        (
            Dialect.CHAT,
            {"model": "m", "choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 5, "completion_tokens": 6}},
            CountedUsage(5, 6, 0, measured=True, model="m", stop_reason="length"),
        ),
        (
            Dialect.GEMINI,
            [
                {"modelVersion": "m", "usageMetadata": {"promptTokenCount": 5}},
                {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 6}},
            ],
            CountedUsage(5, 6, 0, measured=True, model="m"),
        ),
    ],
)
def test_a_reply_that_is_one_document_is_counted_at_its_end(dialect: Dialect, body: Any, expected: CountedUsage) -> None:
    told: list[CountedUsage] = []
    usage = WholeUsage(dialect, 100, told.append)
    content = json.dumps(body).encode()
    usage.feed(content[:10])
    usage.feed(content[10:])
    assert told == []
    usage.finish()
    assert told == [usage.counted] == [expected]


def test_a_document_that_counts_nothing_is_estimated() -> None:
    usage = WholeUsage(Dialect.CHAT, 100, nobody)
    usage.feed(b"x" * 40)
    usage.finish()
    assert usage.counted == CountedUsage(25, 10)


@pytest.mark.parametrize("dialect", Dialect)
def test_a_stop_is_a_well_formed_event_of_each_dialect(dialect: Dialect) -> None:
    told = Reason(403, 'no "more"').event(dialect)
    first = next(line for line in told.decode().splitlines() if line.startswith("data: "))
    assert 'no "more"' in str(json.loads(first[6:]))
    assert told.endswith((b"\n\n", b"\r\n\r\n"))
