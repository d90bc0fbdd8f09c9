"""The fetch tool against real servers on this machine, well-behaved and not."""

import asyncio
import base64
import gzip
import json
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curtainwall.model import AnswerApproval, ApprovalAsked
from curtainwall.tools.fetch.tool import FetchLimits
from tests.support.covers import covers
from tests.support.fetching import Web, told, web
from tests.support.houses import ANN, events, run, until
from tests.support.sites import Seen, Site, redirect, reply, site

MIB = 1024 * 1024


@pytest.fixture
def server() -> Iterator[Site]:
    with site() as opened:
        yield opened


def fetched(tmp_path: Path, server: Site, path: str = "/", limits: FetchLimits | None = None, **arguments: Any) -> tuple[bool, Any]:
    """Return whether a fetch from a listed server went well, and what it gave; what asks is approved."""

    async def story() -> tuple[bool, Any]:
        async with web(tmp_path, [f"127.0.0.1:{server.port}"], limits) as w:
            approving = asyncio.create_task(approve(w))
            try:
                answer = await w.get(f"http://127.0.0.1:{server.port}{path}", **arguments)
            finally:
                approving.cancel()
            assert answer.result is not None, answer.verdict
            return answer.result.ok, told(answer)

    return run(story())


async def approve(w: Web) -> None:
    (ask,) = await until(lambda: [event for event in events(w.house, w.session) if isinstance(event, ApprovalAsked)], 60)
    await w.house.send(w.session, AnswerApproval(by=ANN, approval=ask.approval, granted=True))


def test_a_page_comes_as_text_with_status_url_and_headers(tmp_path: Path, server: Site) -> None:
    server.pages["/"] = reply(200, "<h1>Hi</h1><a href=/x>x</a>", content_type="text/html; charset=utf-8", etag='"1"', server="s")
    ok, value = fetched(tmp_path, server)
    start = f"http://127.0.0.1:{server.port}"
    assert ok
    assert value == {
        "status": 200,
        "url": f"{start}/",
        "content_type": "text/html",
        "headers": {"content-length": "27", "content-type": "text/html; charset=utf-8", "etag": '"1"'},
        "content": f"# Hi\n\n[x]({start}/x)",
    }


def test_raw_is_what_the_server_wrote(tmp_path: Path, server: Site) -> None:
    server.pages |= {"/": reply(200, "<h1>Hi</h1>\r\n", content_type="text/html"), "/b": reply(200, b"\0\1\2", content_type="image/png")}
    assert fetched(tmp_path, server, format="raw")[1]["content"] == "<h1>Hi</h1>\r\n"
    assert base64.b64decode(fetched(tmp_path, server, "/b", format="raw")[1]["base64"]) == b"\0\1\2"
    assert "3 bytes that are no text" in fetched(tmp_path, server, "/b")[1]["notes"][0]


def test_an_error_page_is_an_answer_too(tmp_path: Path, server: Site) -> None:
    ok, value = fetched(tmp_path, server, "/missing")
    assert (ok, value["status"], value["content"]) == (True, 404, "nothing here")


def test_head_and_options_have_no_body_to_wait_for(tmp_path: Path, server: Site) -> None:
    server.pages["/"] = lambda seen: reply(200, b"" if seen.method == "HEAD" else b"x", content_length="1", content_encoding="br")
    assert fetched(tmp_path, server, method="HEAD")[1]["status"] == 200


def test_what_the_agent_sends_arrives_as_it_was_shown(tmp_path: Path, server: Site) -> None:
    server.pages["/"] = reply(200, "ok", content_type="text/plain")
    fetched(tmp_path, server, method="POST", body='{"ü": 1}', headers={"X-Trace": "7", "Accept": "text/plain"})
    (seen,) = server.seen
    assert (seen.method, seen.body.decode()) == ("POST", '{"ü": 1}')
    assert {name: seen.headers.get(name) for name in ("x-trace", "accept", "content-type", "connection", "user-agent")} == {
        "x-trace": "7", "accept": "text/plain", "content-type": "application/json", "connection": "close", "user-agent": "curtainwall",
    }  # fmt: skip


def test_a_body_kept_by_a_redirect_is_judged_as_sending(tmp_path: Path, server: Site) -> None:
    async def story() -> None:
        server.pages |= {"/": redirect("/next", 307), "/next": lambda seen: reply(200, seen.body, content_type="text/plain")}
        async with web(tmp_path, [f"127.0.0.1:{server.port}"], FetchLimits(patience=2)) as w:
            asking = asyncio.create_task(w.get(f"http://127.0.0.1:{server.port}/", method="PUT", body="data"))
            await approve(w)
            assert "a human is asked about that" in str(told(await asking))
            assert server.paths == ["/"]

    run(story())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate", "two members"])
def test_compressed_answers_are_read(tmp_path: Path, server: Site, encoding: str) -> None:
    text = b"hello " * 1000
    bare = zlib.compressobj(wbits=-15)
    body = {
        "gzip": gzip.compress(text), "deflate": zlib.compress(text), "raw deflate": bare.compress(text) + bare.flush(),
        "two members": gzip.compress(text[:3000]) + gzip.compress(text[3000:]),
    }[encoding]  # fmt: skip
    server.pages["/"] = reply(200, body, content_type="text/plain", content_encoding="deflate" if "deflate" in encoding else "gzip")
    assert fetched(tmp_path, server)[1]["content"] == text.decode()


@covers("fetch.sizes-are-bounded")
def test_a_bomb_is_cut_at_the_limit(tmp_path: Path, server: Site) -> None:
    bomb = gzip.compress(b"0" * (200 * MIB), 9)
    assert len(bomb) < MIB
    server.pages["/"] = reply(200, bomb, content_type="text/plain", content_encoding="gzip")
    tracemalloc.start()
    try:
        ok, value = fetched(tmp_path, server, limits=FetchLimits(size=10_000))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ok
    assert most < 20 * MIB, "no piece of it is ever inflated beyond the limit"
    assert value["notes"] == ["the answer was longer; it is cut after 10000 bytes"]


@covers("fetch.sizes-are-bounded")
@pytest.mark.parametrize("how", ["long", "endless", "tiny chunks", "long head", "many members", "nested"])
def test_too_much_is_cut_or_refused(tmp_path: Path, server: Site, how: str) -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/plain\r\n\r\n"
    answers = {
        "long": reply(200, b"x" * 300_000, content_type="text/plain"),
        "endless": b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n" + b"x" * 300_000,
        "tiny chunks": chunked + b"1;" + b"e" * 50 + b"\r\nx\r\n" + (b"1;" + b"e" * 50 + b"\r\nx\r\n") * 20_000,
        "long head": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000 + b"\r\n\r\n",
        "many members": reply(200, gzip.compress(b"") * 100, content_encoding="gzip"),
        "nested": reply(200, gzip.compress(gzip.compress(b"x")), content_encoding="gzip, gzip"),
    }
    server.pages["/"] = answers[how]
    ok, value = fetched(tmp_path, server, limits=FetchLimits(size=10_000))
    if how in {"long", "endless"}:
        assert (ok, len(value["content"])) == (True, 10_000)
    else:
        assert not ok


@pytest.mark.parametrize(
    "answer",
    [b"", b"garbage\r\n\r\n", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", b"HTTP/1.1 999999 X\r\n\r\n",
     b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx", b"HTTP/1.1 101 Switch\r\nupgrade: x\r\n\r\n",
     b"HTTP/1.1 100 Go\r\n\r\n" * 1000, reply(200, b"not gzip", content_encoding="gzip"), reply(200, b"x", content_encoding="br"),
     b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"],
)  # fmt: skip
def test_what_is_no_proper_answer_is_an_error_and_nothing_else(tmp_path: Path, server: Site, answer: bytes) -> None:
    server.pages["/"] = answer
    ok, value = fetched(tmp_path, server)
    assert not ok
    assert "the tool failed" not in value, value


@covers("fetch.time-is-bounded")
def test_a_server_that_drips_is_cut_off(tmp_path: Path, server: Site) -> None:
    def drip(_seen: Seen) -> bytes:
        server.hold.wait(30)
        return b""

    server.pages["/"] = drip
    try:
        ok, value = fetched(tmp_path, server, limits=FetchLimits(seconds=0.5))
    finally:
        server.hold.set()
    assert (ok, "did not give a whole answer within 0.5 seconds" in value) == (False, True)


def test_redirects_share_the_time(tmp_path: Path, server: Site) -> None:
    def slow(_seen: Seen) -> bytes:
        threading.Event().wait(0.4)
        return redirect(f"/?{len(server.seen)}")

    server.pages["/"] = slow
    ok, value = fetched(tmp_path, server, limits=FetchLimits(seconds=1.0))
    assert not ok
    assert "did not give a whole answer" in value
    assert len(server.seen) <= 3


def test_many_fetches_at_once_do_not_get_in_each_others_way(tmp_path: Path, server: Site) -> None:
    server.pages |= {f"/{n}": redirect(f"/to/{n}") for n in range(10)}
    server.pages |= {f"/to/{n}": reply(200, json.dumps({"n": n}), content_type="application/json") for n in range(10)}

    async def story() -> list[Any]:
        async with web(tmp_path, [f"127.0.0.1:{server.port}"]) as w:
            answers = await asyncio.gather(*(w.get(f"http://127.0.0.1:{server.port}/{n}") for n in range(10)))
            return [json.loads(told(answer)["content"])["n"] for answer in answers]

    assert run(story()) == [*range(10)]
