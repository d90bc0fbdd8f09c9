"""Requests that are almost right: a provider gets whole requests that were judged, or nothing; and nothing of them stays."""

import asyncio
import gc
import json
import os
import secrets
import ssl
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curtainwall.egress import EgressBounds
from tests.support.covers import covers
from tests.support.egress import REAL, Session, asking, says, session
from tests.support.houses import run, until

FULL = bool(os.environ.get("CURTAINWALL_LONG_TESTS"))
"""Whether there is time for the whole numbers of the promise; `make bench` always measures them."""

TRICKS = st.sampled_from(
    [
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b" ",
        b"\t",
        b"\x00",
        b"\x0b",
        b"0\r\n\r\n",
        b"5\r\nhello\r\n",
        b"content-length: 0\r\n",
        b"content-length: 4\r\n",
        b"Content-Length : 4\r\n",
        b"transfer-encoding: chunked\r\n",
        b"transfer-encoding:\tchunked\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"transfer-encoding: x, chunked\r\n",
        b"connection: keep-alive, content-length\r\n",
        b"connection: close\r\n",
        b"expect: 100-continue\r\n",
        b"GET /v1/files HTTP/1.1\r\nhost: api.anthropic.com\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\n",
        b"x-api-key: mine\r\n",
        b"/../",
        b"//",
        b"%2e",
        b'{"model":1}',
        b'"a":1,',
        b"}",
        b"HTTP/1.0",
    ]
)


class Smuggler:
    """One session on which many changed requests are tried, in a loop of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self._runner = asyncio.Runner()
        self._context = session(tmp_path, bounds=EgressBounds(sending=0.3, idle=0.3, handshake=5.0))
        self.there = self._runner.run(self._context.__aenter__())
        self.there.far.otherwise = says({"usage": {"input_tokens": 1, "output_tokens": 1}})

    def try_out(self, inputs: list[bytes]) -> None:
        self._runner.run(asyncio.wait_for(self._try(inputs), 60))

    async def _try(self, inputs: list[bytes]) -> None:
        there = self.there
        there.far.seen.clear()
        came = b"".join(await asyncio.gather(*map(self._send, inputs)))
        await until(lambda: not there.proxy.connections)
        assert there.proxy.held == 0
        assert REAL.encode() not in came
        assert len(there.far.seen) <= came.count(b"HTTP/1.1 200"), "the provider got more requests than were answered"
        for request in there.far.seen:
            assert (request.method, request.target.partition("?")[0]) == ("POST", "/v1/messages")
            assert request.headers["x-api-key"] == REAL
            assert "transfer-encoding" not in request.headers
            assert int(request.headers["content-length"]) == len(request.body)
            assert isinstance(json.loads(request.body), dict)
            assert request.headers["host"].startswith("localhost:")

    async def _send(self, data: bytes) -> bytes:
        async with self.there.inside() as client:
            await client.send(data)
            return await client.rest()

    def close(self) -> None:
        async def end() -> None:
            (got,) = await self.there.ask(self.there.request())
            assert got.status == 200, "and after all of it, an honest client is served"
            await self._context.__aexit__(None, None, None)

        self._runner.run(end())
        self._runner.close()


@pytest.fixture
def smuggler(tmp_path: Path) -> Iterator[Smuggler]:
    made = Smuggler(tmp_path)
    yield made
    made.close()


# Each input has to be waited for until it is given up, so many are tried at once.
AT_ONCE = 30
CHANGES = st.lists(st.tuples(st.floats(0, 1), TRICKS, st.integers(0, 8)), min_size=1, max_size=3)


def changed(sent: bytes, changes: list[tuple[float, bytes, int]]) -> bytes:
    for where, trick, gone in changes:
        at = int(where * len(sent))
        sent = sent[:at] + trick + sent[at + gone :]
    return sent


@settings(max_examples=200 if FULL else 4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(many=st.lists(st.tuples(st.integers(1, 2), CHANGES), min_size=AT_ONCE, max_size=AT_ONCE))
@covers("egress.garbage-hurts-nobody")
def test_a_changed_request_arrives_as_it_was_judged_or_not_at_all(smuggler: Smuggler, many: list[Any]) -> None:
    smuggler.try_out([changed(smuggler.there.request() * times, changes) for times, changes in many])


ALMOST_AS_BEFORE = {
    "another key of the same length": (b"sk-ant-", b"sk-ANT-", 403),
    "a second key": (b"content-type", b"authorization: Bearer x\r\ncontent-type", 403),
    "another host": (b"host: api.", b"host: ipa.", 403),
    "another path": (b"/v1/messages HTTP", b"/v1/massages HTTP", 403),
    "another method": (b"POST ", b"GET ", 403),
    "another kind of body": (b"application/json", b"application/jsox", 415),
    "an encoded body": (b"content-type", b"content-encoding: gzip\r\ncontent-type", 415),
    "a web socket": (b"content-type", b"upgrade: websocket\r\ncontent-type", 426),
    "another method inside": (b"content-type", b"x-http-method: PUT\r\ncontent-type", 403),
    "two lengths": (b"content-length: ", b"content-length: 1\r\ncontent-length: ", 400),
    "two lengths, the second one in the place of the first": (b"content-length: ", b"content-length: 2\r\nx: ", 400),
    "a length and chunks": (b"content-length: ", b"transfer-encoding: chunked\r\ncontent-length: ", 400),
    "chunks after the length": (b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n", 400),
    "a length with a sign": (b"content-length: ", b"content-length: +", 400),
    "a length with a word": (b"content-length: ", b"content-length: 0x", 400),
    "a length below nothing": (b"content-length: ", b"content-length: -", 400),
    "a length that is too long": (b"content-length: ", b"content-length: 9999999999", 413),
    "a length without end": (b"content-length: ", b"content-length: " + b"1" * 40, 400),
}


@pytest.mark.parametrize("at_once", [False, True], ids=["afterwards", "at once"])
@pytest.mark.parametrize(("before", "after", "status"), ALMOST_AS_BEFORE.values(), ids=ALMOST_AS_BEFORE)
@covers("egress.garbage-hurts-nobody")
def test_a_right_request_does_not_vouch_for_one_that_is_almost_the_same(
    before: bytes, after: bytes, status: int, at_once: bool, tmp_path: Path
) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            right = there.request()
            wrong = right.replace(before, after, 1)
            assert wrong != right
            statuses = list[int]()
            for sent in [right * 2 + wrong] if at_once else [right, right, wrong]:
                await client.send(sent)
                statuses += [(await client.answer()).status for _ in range(3 if at_once else 1)]
            assert statuses[:2] == [200, 200]
            assert statuses[2] == status
            assert len(there.far.seen) == 2, "the provider never hears of the third"

    run(story())


@covers("egress.garbage-hurts-nobody")
def test_bodies_of_any_length_follow_one_another_under_the_same_head(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            bodies = [json.dumps(asking(system="x" * size)).encode() for size in (0, 1, 9, 99, 70_000, 3, 300_000, 0)]
            requests = b"".join(map(there.request, bodies))
            for at in range(0, len(requests), 40_001):
                await client.send(requests[at : at + 40_001])
            for _ in bodies:
                assert (await client.answer()).status == 200
            assert [seen.body for seen in there.far.seen] == bodies
            await client.send(there.request(b""))
            assert (await client.answer()).status == 400, "and an empty one is no object"

    run(story())


@covers("egress.only-listed-hosts")
def test_a_redirect_is_an_answer_and_nobody_goes_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            place = f"https://localhost:{there.far.port}/v1/elsewhere"
            there.far.otherwise = says(b"", status=307, location=place)
            (got,) = await there.ask(there.request())
            assert (got.status, got.headers["location"]) == (307, place)
            assert [seen.target for seen in there.far.seen] == ["/v1/messages"], "we did not follow, with the key or without"
            async with there.raw() as client:
                await client.send(f"CONNECT localhost:{there.far.port} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
                assert (await client.answer()).status == 403, "and whoever does is asked about that host like about any other"

    run(story())


@covers("egress.only-listed-hosts")
def test_connect_may_come_in_the_first_version_as_older_libraries_say_it_and_nothing_else_may(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.raw() as client:
            await client.send(b"CONNECT api.anthropic.com:443 HTTP/1.0\r\n\r\n")
            assert (await client.head())[0] == 200
            await client.secure(there.trust(), "api.anthropic.com")
            await client.send(there.request())
            assert (await client.answer()).status == 200
            await client.send(there.request().replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert (await client.answer()).status == 505

    run(story())


# ── nothing stays ─────────────────────────────────────────────────────────────────────────────────────────────────────

REQUESTS, NAMES = (100_000, 10_000) if FULL else (1_500, 150)


async def some_requests(there: Session, count: int) -> None:
    async with there.inside() as client:
        for number in range(count):
            await client.send(there.request(asking(note=secrets.token_hex(8)), f"/v1/messages?n={number}"))
            assert (await client.answer()).status == 200
    there.far.seen.clear()
    there.ledger.ends.clear()
    there.ledger.began.clear()
    there.ledger.counted.clear()


async def some_names(there: Session, count: int) -> None:
    trust = there.trust()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    for _ in range(count):
        async with there.raw() as client:
            await client.send(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n")
            await client.head()
            with pytest.raises(OSError, match=r".*"):
                await client.secure(trust, f"{secrets.token_hex(8)}.test")


@pytest.mark.timeout(3600 if FULL else 300)
@covers("egress.memory-flat")
def test_memory_is_flat_however_many_requests_and_names_have_passed(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            await some_requests(there, 200)
            await some_names(there, 30)
            kept: list[int] = []
            tracemalloc.start()
            try:
                for _ in range(2):
                    await some_requests(there, REQUESTS // 2)
                    await some_names(there, NAMES // 2)
                    await until(lambda: not there.proxy.connections)
                    gc.collect()
                    kept.append(tracemalloc.get_traced_memory()[0])
            finally:
                tracemalloc.stop()
            # The first half has filled every cache; what the second one adds is what each request would leave behind.
            assert kept[1] - kept[0] < 60_000, kept

    asyncio.run(asyncio.wait_for(story(), 3600))
