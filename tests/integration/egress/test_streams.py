"""Replies on their way: passed on as they come, counted, stopped by the meter, and told of when either side goes away."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from curtainwall.egress import ANTHROPIC, GEMINI, OPENAI, Access, CountedUsage, EgressBounds, ModelCallEnd, ProxyConfig
from tests.support.covers import covers
from tests.support.dialects import STREAMS
from tests.support.egress import Fixed, Inside, Ledger, Saying, Seen, Streams, asking, event, message, says, session
from tests.support.houses import run, until


async def next_event(client: Inside) -> bytes:
    async with asyncio.timeout(60):
        return await client.chunk()


@covers("egress.unbuffered")
def test_the_first_event_is_there_before_the_provider_sends_the_second(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            events = message("one", "two", "three")
            there.far.will(stream := Streams(events, held=True))
            await client.send(there.request(asking(stream=True)))
            assert (await client.head())[0] == 200
            for number, expected in enumerate(events, start=1):
                assert await next_event(client) == expected
                assert stream.sent == number, "the next one has not been sent"
                stream.go()
            assert await next_event(client) == b""

    run(story())


@covers("egress.client-gone")
def test_a_client_that_goes_away_closes_the_provider_within_three_seconds(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            seconds: list[float] = []
            for times in (1, 2, 3):
                there.far.will(Streams(message("one")[:3], hangs=True))
                async with there.inside() as client:
                    await client.send(there.request(asking(stream=True)))
                    await client.head()
                    await next_event(client)
                began = time.monotonic()
                await until(lambda times=times: there.far.left == times)
                seconds.append(time.monotonic() - began)
            # Others may be at work on this machine; how quick it can be is what counts.
            assert min(seconds) < 3
            await until(lambda: len(there.ledger.ends) == 3)
            assert {(ended.how, counted.input_tokens) for _, counted, ended in there.ledger.ends} == {("left", 1000)}
            await until(lambda: not there.proxy.connections and not there.proxy.held)

    run(story())


def test_a_client_that_goes_away_before_any_answer_closes_the_provider_too(tmp_path: Path) -> None:
    async def silent(_: Seen, __: Any) -> bool:
        await asyncio.Event().wait()
        return False

    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(silent)
            async with there.inside() as client:
                await client.send(there.request())
                await until(lambda: there.far.seen)
            await until(lambda: there.far.left == 1)

    run(story())


@covers("egress.usage-read")
def test_what_was_asked_is_counted_though_nobody_waited_for_the_reply(tmp_path: Path) -> None:
    async def silent(_: Seen, __: Any) -> bool:
        await asyncio.Event().wait()
        return False

    async def begins(_: Seen, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n" + b"x" * 400)
        return await silent(_, writer)

    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(silent, begins, says({"error": "busy"}, 529))
            for left in (1, 2):
                async with there.inside() as client:
                    await client.send(there.request(asking(padding="x" * 400_000)))
                    await until(lambda left=left: len(there.far.seen) == left)
                    if left == 2:
                        await client.head()
                        await client.reader.readexactly(300)
                await until(lambda left=left: len(there.ledger.ends) == left)
            await there.ask(there.request())
            (unanswered, _, left), (_, begun, _), (_, refused, _) = there.ledger.ends
            assert left.how == "left"
            counts = [counted for _, counted, _ in there.ledger.ends]
            assert counts[0].input_tokens == -(-unanswered.size // 4)
            assert (begun.input_tokens, begun.output_tokens) == (counts[0].input_tokens, 100)
            assert not any(counted.measured for counted in counts)
            assert refused == CountedUsage(), "a refusal costs nothing"

    run(story())


@covers("egress.provider-gone")
def test_a_provider_that_does_not_read_is_given_up_and_a_slow_one_is_not(tmp_path: Path) -> None:
    body = json.dumps(asking(padding="x" * 16_000_000)).encode()
    size, is_slow, over = len(body), False, asyncio.Event()

    async def reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: %d\r\n" % size in head
        left = size
        while left:
            # Slowly at first, and then what is on its way.
            if not is_slow or left > size // 2:
                writer.transport.pause_reading()
                if not is_slow:
                    await over.wait()
                    return
                await asyncio.sleep(0.1)
                writer.transport.resume_reading()
            left -= len(await reader.read(2**18))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await reader.read()

    async def story() -> None:
        nonlocal is_slow
        async with session(tmp_path, bounds=EgressBounds(silence=1.5)) as there, there.inside() as client:
            there.far.reads = reads
            await client.send(there.request(body))
            got = await client.answer()
            assert (got.status, "took nothing" in got.said) == (502, True)
            assert there.ledger.ends[0][1] == CountedUsage(), "it was not sent whole"
            is_slow = True
            await client.send(there.request(body))
            assert (await client.answer()).status == 200
            over.set()

    run(story())


@covers("egress.provider-gone")
def test_a_reply_without_a_length_is_whole_only_where_the_provider_said_that_it_ends(tmp_path: Path) -> None:
    def until_the_end(kind: str, *, says_so: bool) -> Saying:
        async def say(_: Seen, writer: asyncio.StreamWriter) -> bool:
            writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\n".encode() + b"".join(message("one")))
            await writer.drain()
            if says_so:
                writer.close()
                await writer.wait_closed()
            return False

        return say

    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(*(until_the_end("text/event-stream", says_so=so) for so in (True, False)))
            whole, cut = await there.ask(there.request(asking(stream=True)), there.request(asking(stream=True)))
            assert (whole.body, cut.body.startswith(whole.body)) == (b"".join(message("one")), True)
            assert b"hung up in the middle" in cut.body
            there.far.will(until_the_end("application/json", says_so=False))
            async with there.inside() as client:
                await client.send(there.request())
                assert not (await client.rest()).endswith(b"0\r\n\r\n"), "its end is not made up"
            assert [ended.how for _, _, ended in there.ledger.ends] == ["done", "broken", "broken"]

    run(story())


@covers("egress.provider-gone")
def test_a_head_that_comes_in_drips_has_to_be_whole_in_time(tmp_path: Path) -> None:
    async def drips(_: Seen, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"a: b\r\n")
            await asyncio.sleep(0.1)

    async def story() -> None:
        async with session(tmp_path, bounds=EgressBounds(silence=1.0)) as there:
            there.far.will(drips)
            (got,) = await there.ask(there.request())
            assert (got.status, "silent" in got.said) == (502, True)

    run(story())


@covers("egress.provider-gone")
def test_a_provider_that_goes_away_in_the_middle_of_a_stream_is_told_as_its_own_error(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(Streams(message("one")[:3], ends=False), says())
            broken, after = await there.ask(there.request(asking(stream=True)), there.request())
            assert broken.body.startswith(b"".join(message("one")[:3]))
            assert b"event: error\ndata: " in broken.body
            assert b"hung up in the middle" in broken.body
            assert after.status == 200, "the client's connection goes on"
            assert there.ledger.ends[0][2].how == "broken"

    run(story())


def test_an_event_that_was_torn_is_ended_before_the_error(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(Streams([message("one")[0], b"event: content_block_delta\ndata: {"], ends=False))
            (got,) = await there.ask(there.request(asking(stream=True)))
            assert b"data: {\n\nevent: error\n" in got.body

    run(story())


def test_a_document_that_is_torn_is_not_made_to_look_whole(tmp_path: Path) -> None:
    async def half(_: Seen, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()
        return False

    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            there.far.will(half)
            await client.send(there.request())
            await client.head()
            assert await client.rest() in {b"half", b""}

    run(story())


def test_a_provider_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    async def silent(_: Seen, __: Any) -> bool:
        await asyncio.Event().wait()
        return False

    async def story() -> None:
        async with session(tmp_path, bounds=EgressBounds(silence=1.0)) as there:
            there.far.will(silent, Streams(message("x")[:2], hangs=True))
            first, second = await there.ask(there.request(), there.request(asking(stream=True)))
            assert (first.status, "silent" in first.said) == (502, True)
            assert (second.status, "silent" in second.said) == (200, True)
            await until(lambda: there.far.left == 2)

    run(story())


@covers("egress.stops-within-one-event")
def test_a_budget_that_is_reached_stops_the_stream_and_hangs_up_on_the_provider(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path, ledger=Ledger(most=1030)) as there, there.inside() as client:
            events = message(*("word " * 8 for _ in range(50)), read=1000)
            there.far.will(stream := Streams(events, held=True))
            await client.send(there.request(asking(stream=True)))
            await client.head()
            came: list[bytes] = []
            while piece := await next_event(client):
                came.append(piece)
                stream.go()
            assert b"".join(came[:-1]) + came[-1][: len(events[4])] == b"".join(events[:5])
            assert came[-1].endswith(b"\n\n")
            assert b'event: error\ndata: {"type": "error"' in came[-1]
            assert b"the budget of this session is used up" in came[-1]
            await until(lambda: there.far.left == 1)
            ((_, counted, ended),) = there.ledger.ends
            assert (ended.how, counted.output_tokens) == ("stopped", 30)
            there.far.will(says())
            await client.send(there.request())
            assert (await client.answer()).status == 200, "the connection itself is whole"

    run(story())


def test_a_call_that_the_meter_does_not_want_is_never_made(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path, ledger=Ledger(refuses="the budget is used up")) as there:
            refused, counted = await there.ask(there.request(), there.request(path="/v1/messages/count_tokens"))
            assert (refused.status, "the budget is used up" in refused.said) == (403, True)
            assert counted.status == 200, "counting tokens is no call of a model"
            assert [seen.target for seen in there.far.seen] == ["/v1/messages/count_tokens"]
            assert there.ledger.ends == []

    run(story())


def test_every_call_that_began_is_ended_once_with_what_it_used(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(Streams(message("one", written=42)), says({"type": "error"}, 529))
            await there.ask(there.request(asking(stream=True)), there.request())
            (first, second) = there.ledger.ends
            assert [call.number for call in there.ledger.began] == [1, 2]
            assert (first[0].model, first[1].output_tokens, first[1].stop_reason, first[2].how) == ("claude-x", 42, "end_turn", "done")
            assert (second[2].how, second[2].status) == ("refused", 529)

    run(story())


@pytest.mark.parametrize("name", STREAMS)
@covers("egress.usage-read")
def test_what_each_provider_counts_is_told_to_the_meter(name: str, tmp_path: Path) -> None:
    dialect, events, expected = STREAMS[name]
    provider = next(each for each in (ANTHROPIC, OPENAI, GEMINI) if any(end.dialect is dialect for end in each.endpoints))
    path = next(end.path for end in provider.endpoints if end.dialect is dialect and end.model).replace("NAME", "gemini-x")

    async def story() -> None:
        async with session(tmp_path, provider) as there:
            there.far.will(Streams(events))
            (got,) = await there.ask(there.request({"model": "m", "stream": True}, path))
            assert b"".join(events) in got.body
            ((call, counted, ended),) = there.ledger.ends
            assert (counted, ended.how, call.dialect) == (expected, "done", dialect)

    run(story())


def test_a_chat_stream_is_made_to_tell_what_it_used(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path, OPENAI) as there:
            body = {"model": "gpt-x", "stream": True, "messages": []}
            await there.ask(there.request(body, "/v1/chat/completions"), there.request({**body, "stream": False}, "/v1/chat/completions"))
            first, second = there.far.seen
            assert first.json == {**body, "stream_options": {"include_usage": True}}
            assert second.json == {**body, "stream": False}

    run(story())


@covers("egress.backpressure")
def test_a_client_that_does_not_read_holds_the_provider_back(tmp_path: Path) -> None:
    written = 0

    async def endless(_: Seen, writer: asyncio.StreamWriter) -> bool:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        piece = event("content_block_delta", delta={"type": "text_delta", "text": "x" * 60_000})
        while written < 200_000_000:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            written += len(piece)
        return False

    async def story() -> None:
        async with session(tmp_path, bounds=EgressBounds(stalled=1.0)) as there, there.raw() as client:
            there.far.will(endless)
            await client.send(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n")
            await client.head()
            await client.secure(there.trust(), "api.anthropic.com")
            client.writer.transport.pause_reading()
            await client.send(there.request(asking(stream=True)))
            await until(lambda: there.far.left == 1)
            assert 100_000 < written < 20_000_000, "what fits into buffers, and no more"
            assert there.ledger.ends[0][2] == ModelCallEnd("left", 200)

    run(story())


@covers("egress.keep-alive")
def test_connections_are_kept_on_both_sides_and_never_more_than_a_few(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            answers = await there.ask(*(there.request() for _ in range(20)))
            assert [got.status for got in answers] == [200] * 20
            assert (there.far.connections, there.proxy.counters.connections) == (1, 1)
            await asyncio.gather(*(there.ask(there.request()) for _ in range(30)))
            assert there.egress.idle_connections <= 16

    run(story())


def test_a_client_that_ends_its_connection_sees_its_end_after_a_refusal_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            await client.send(there.request(key="x-api-key: sk-ant-somebody-elses", headers=("connection: close",)))
            assert (await client.answer()).status == 403
            assert await client.rest() == b""

    run(story())


def test_a_connection_that_the_provider_closed_meanwhile_is_not_used(tmp_path: Path) -> None:
    async def closes(seen: Seen, writer: asyncio.StreamWriter) -> bool:
        await says({"n": 1})(seen, writer)
        return False

    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(closes)
            await there.ask(there.request())
            await until(lambda: not there.far.open)
            (got,) = await there.ask(there.request())
            assert (got.status, there.far.connections) == (200, 2)

    run(story())


def _stale(text: bytes) -> Saying:
    async def say(seen: Seen, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" + text)
        await writer.drain()
        return True

    return say


def test_what_nobody_asked_for_is_not_taken_for_the_next_answer(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(_stale(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"), says({"n": 2}), says({"n": 3}))
            first, second = await there.ask(there.request(), there.request())
            assert (first.status, second.json) == (200, {"n": 2})
            assert there.far.connections == 2

    run(story())


def test_hop_by_hop_headers_and_what_a_provider_remembers_by_stay_behind(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(says(set_cookie="a=b", alt_svc="h3", connection="x-hop", x_hop="1", keep_alive="5", request_id="req_1"))
            mine = (
                "connection: keep-alive, x-mine",
                "x-mine: 1",
                "cookie: a=b",
                "te: trailers",
                "x-forwarded-for: 10.0.0.1",
                "anthropic-beta: b",
            )
            (got,) = await there.ask(there.request(headers=(*mine, "accept-encoding: gzip, br")))
            assert set(got.headers) == {"content-type", "content-length", "request-id"}
            assert there.far.seen[0].headers.keys() == {
                "host", "content-type", "content-length", "x-api-key", "anthropic-beta", "accept-encoding",
            }  # fmt: skip
            assert there.far.seen[0].headers["accept-encoding"] == "identity"

    run(story())


def test_an_answer_that_is_encoded_anyway_is_not_passed_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(says(b"\x1f\x8b", content_encoding="gzip"))
            (got,) = await there.ask(there.request())
            assert (got.status, "encoding" in got.said) == (502, True)

    run(story())


def test_a_client_may_wait_before_it_sends_its_body(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            head, _, body = there.request(headers=("expect: 100-continue",)).partition(b"\r\n\r\n")
            await client.send(head + b"\r\n\r\n")
            assert (await client.head())[0] == 100
            await client.send(body)
            assert (await client.answer()).status == 200

    run(story())


def test_requests_that_come_all_at_once_are_answered_in_their_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            there.far.will(*(says({"n": number}) for number in range(5)))
            await client.send(there.request() * 5)
            assert [(await client.answer()).json["n"] for _ in range(5)] == [0, 1, 2, 3, 4]

    run(story())


def test_a_provider_at_a_private_address_is_reached_only_where_the_user_configured_it(tmp_path: Path) -> None:
    async def lies(_: str, __: int) -> list[str]:
        return ["127.0.0.1"]

    async def story() -> None:
        async with session(tmp_path, resolve=lies) as there:
            (got,) = await there.ask(there.request())
            assert got.status == 200, "the user configured that place"
            terms = ProxyConfig((Access(ANTHROPIC, Fixed()),))
            there.proxy = await there.egress.open(terms, tmp_path / "q")
            there.path, there.provider = tmp_path / "q", ANTHROPIC
            (got,) = await there.ask(there.request())
            assert (got.status, "leads to a private address" in got.said) == (502, True)
            assert len(there.far.seen) == 1
            await there.proxy.close()

    run(story())
