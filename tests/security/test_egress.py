"""A hostile agent on its way to the network: other keys, endpoints and hosts, garbage and floods; the real key never comes back."""

import asyncio
import base64
import gc
import json
import logging
import secrets
import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curtainwall.egress import ANTHROPIC, GEMINI, OPENAI, Access, Authority, EgressBounds, HostDecision, Provider, ProxyConfig
from curtainwall.host import Unavailable, Wire
from curtainwall.model import HostFacts
from tests.support.covers import covers
from tests.support.egress import REAL, Fixed, Got, Inside, Session, Streams, Tokens, asking, event, message, says, session
from tests.support.houses import run, until

PROVIDERS = {provider.name: provider for provider in (ANTHROPIC, OPENAI, GEMINI)}
PATHS = {"anthropic": "/v1/messages", "openai": "/v1/responses", "gemini": "/v1beta/models/gemini-x:generateContent"}
BODIES: dict[str, Any] = {"anthropic": asking(), "openai": {"model": "m", "input": "x"}, "gemini": {"contents": []}}


async def shakes_hands(client: Inside, trust: ssl.SSLContext, name: str) -> bool:
    """Tell whether a handshake comes to its end; a server that turns it away may say so or just hang up."""
    try:
        await client.secure(trust, name)
    except OSError:
        return False
    return True


def no_key_came(client: Inside) -> None:
    assert REAL.encode() not in client.came


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

KEYS = {
    "none": "",
    "another key": "x-api-key: sk-ant-api03-some-other-key",
    "the real key": f"x-api-key: {REAL}",
    "an empty key": "x-api-key:",
    "the session's key in another header": "x-goog-api-key: {sentinel}",
    "the session's key as a token of another kind": "authorization: Token {sentinel}",
    "the session's key without its prefix": "authorization: {sentinel}",
    "the session's key with more": "x-api-key: {sentinel}x",
    "the session's key cut": "x-api-key: {cut}",
    "the session's key in capitals": "x-api-key: {upper}",
    "the session's key twice in one header": "x-api-key: {sentinel}, {sentinel}",
    "two headers": "x-api-key: {sentinel}\r\nx-api-key: {sentinel}",
    "two kinds of header": "x-api-key: {sentinel}\r\nauthorization: Bearer {sentinel}",
    "a key of one's own beside it": "x-api-key: {sentinel}\r\nauthorization: Bearer sk-ant-mine",
    "a key in a header of another provider beside it": "x-api-key: {sentinel}\r\nx-goog-api-key: AIzaMine",
    "a user name and password": "authorization: Basic " + base64.b64encode(b"a:b").decode(),
    "a key for the proxy beside it": "x-api-key: {sentinel}\r\nproxy-authorization: Bearer mine",
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@covers("egress.only-the-sentinel")
def test_any_key_but_the_sessions_own_in_its_one_header_is_refused(key: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            mine = there.sentinel
            await client.send(there.request(key=key.format(sentinel=mine, cut=mine[:-1], upper=mine.upper())))
            got = await client.answer()
            assert got.status == 403
            assert there.far.seen == []
            no_key_came(client)

    run(story())


@pytest.mark.parametrize("name", PROVIDERS)
@covers("egress.only-the-sentinel")
def test_the_right_stand_in_is_exchanged_for_the_key_and_another_providers_is_not(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path, PROVIDERS[name]) as there:
            others = tuple(Access(other.at(f"https://localhost:{there.far.port}"), Fixed()) for other in PROVIDERS.values())
            proxy = await there.egress.open(ProxyConfig(others), tmp_path / "all")
            there.proxy, there.path = proxy, tmp_path / "all"
            carrier = there.provider.keys[0]
            for other, sentinel in proxy.sentinels.items():
                request = there.request(BODIES[name], PATHS[name], key=f"{carrier.header}: {carrier.prefix}{sentinel}")
                (got,) = await there.ask(request)
                assert got.status == (200 if other == name else 403), other
            (seen,) = there.far.seen
            assert seen.headers[carrier.header] == f"{carrier.prefix}{REAL}"
            assert proxy.sentinels[name] not in seen.raw.decode("latin-1")
            await proxy.close()

    run(story())


def test_two_sessions_do_not_share_a_stand_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            other = await there.egress.open(ProxyConfig((Access(there.provider, Fixed()),)), tmp_path / "other")
            (got,) = await there.ask(there.request(key=f"x-api-key: {other.sentinels['anthropic']}"))
            assert (got.status, there.far.seen) == (403, [])
            await other.close()

    run(story())


def _echoes() -> dict[str, Any]:
    half, rest = REAL.encode()[:20], REAL.encode()[20:]

    async def in_pieces(_: Any, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for byte in b"data: " + REAL.encode() + b"\n\n":
            writer.write(b"1\r\n%c\r\n" % byte)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        return True

    return {
        "a document": says(f'{{"key": "{REAL}"}}'),
        "an error": says({"error": {"message": f"invalid x-api-key {REAL}"}}, 401),
        "a header": says("{}", x_echo=REAL, x_also=f"Bearer {REAL}"),
        "the name of a header": says("{}", **{REAL: "x"}),
        "a stream": Streams([*message("one")[:2], event("content_block_delta", delta={"type": "text_delta", "text": REAL})]),
        "two chunks": Streams([b"data: " + half, rest + b"\n\n"]),
        "single bytes": in_pieces,
        "the last bytes": says(b"x" * 70_000 + REAL.encode()),
    }


@pytest.mark.parametrize("how", _echoes())
@covers("egress.key-never-comes-back")
def test_a_provider_that_repeats_the_key_repeats_it_to_nobody(how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            there.far.will(_echoes()[how])
            await client.send(there.request(asking(stream=True)))
            got = await client.answer()
            assert there.far.seen[0].headers["x-api-key"] == REAL
            assert REAL.encode() not in got.body
            no_key_came(client)
            assert REAL not in str(got.headers) + repr(there.proxy) + repr(there.egress) + repr(there.ledger)

    run(story())
    assert REAL not in caplog.text


@covers("egress.oauth-refresh-once")
def test_a_token_that_ran_out_is_refreshed_once_and_neither_comes_back(tmp_path: Path) -> None:
    old, new = "oauth-token-the-old-one", "oauth-token-the-new-one"

    async def story() -> None:
        source = Tokens(old, [new])
        async with session(tmp_path, source=source, oauth=True) as there:
            there.far.will(says({"error": old}, 401), says({"old": old, "new": new}), says({}, 401))
            key = f"authorization: Bearer {there.sentinel}"
            (got,) = await there.ask(there.request(key=key))
            assert [seen.headers["authorization"] for seen in there.far.seen] == [f"Bearer {old}", f"Bearer {new}"]
            assert got.json == {"old": "*" * len(old), "new": "*" * len(new)}
            assert there.far.seen[0].body == there.far.seen[1].body
            assert len(there.ledger.ends) == 1
            source.fresh.append("oauth-token-the-third")
            there.far.will(says({"error": "still"}, 401))
            (got,) = await there.ask(there.request(key=key))
            assert (got.status, got.json) == (401, {"error": "still"}), "once, and then the refusal is the answer"
            assert source.asked == [old, new]
            (got,) = await there.ask(there.request())
            assert got.status == 403, "the header of another kind of key is not this one"

    run(story())


def test_a_token_that_cannot_be_refreshed_leaves_the_providers_answer(tmp_path: Path) -> None:
    class Stuck:
        async def read(self) -> str:
            return "oauth-token-the-old-one"

        async def refresh(self, stale: str) -> str:
            raise Unavailable("sign in again")

    async def story() -> None:
        async with session(tmp_path, source=Stuck(), oauth=True) as there:
            there.far.will(says({"error": "expired"}, 401))
            (got,) = await there.ask(there.request(key=f"authorization: Bearer {there.sentinel}"))
            assert (got.status, got.json, len(there.far.seen)) == (401, {"error": "expired"}, 1)

    run(story())


# ── endpoints ─────────────────────────────────────────────────────────────────────────────────────────────────────────

TARGETS = {
    "another path": ("POST", "/v1/files"),
    "a path below": ("POST", "/v1/messages/batches"),
    "a path above": ("POST", "/v1"),
    "the root": ("POST", "/"),
    "another method": ("PUT", "/v1/messages"),
    "a method in small letters": ("post", "/v1/messages"),
    "reading what is written": ("GET", "/v1/messages"),
    "OPTIONS": ("OPTIONS", "*"),
    "HEAD": ("HEAD", "/v1/models"),
    "TRACE": ("TRACE", "/v1/messages"),
    "CONNECT inside": ("CONNECT", "evil.test:443"),
    "a slash at the end": ("POST", "/v1/messages/"),
    "two slashes": ("POST", "//v1/messages"),
    "two slashes inside": ("POST", "/v1//messages"),
    "a dot": ("POST", "/v1/./messages"),
    "two dots": ("POST", "/v1/messages/../messages"),
    "two dots at the end": ("POST", "/v1/messages/.."),
    "an escaped slash": ("POST", "/v1%2fmessages"),
    "an escaped slash in capitals": ("POST", "/v1%2Fmessages"),
    "an escaped dot": ("POST", "/v1/%2e%2e/v1/messages"),
    "an escaped letter": ("POST", "/v1/m%65ssages"),
    "an escaped backslash": ("POST", "/v1%5cmessages"),
    "a backslash": ("POST", "/v1\\messages"),
    "an escaped NUL": ("POST", "/v1/messages%00"),
    "a semicolon": ("POST", "/v1/messages;x"),
    "capitals": ("POST", "/V1/Messages"),
    "a fragment": ("POST", "/v1/messages#x"),
    "a fragment in the query": ("POST", "/v1/messages?a#b"),
    "a whole URL": ("POST", "https://api.anthropic.com/v1/messages"),
    "a whole URL of another host": ("POST", "https://evil.test/v1/messages"),
    "a path without its slash": ("POST", "v1/messages"),
    "a key in the query": ("POST", "/v1/messages?key=mine"),
    "an escaped key in the query": ("POST", "/v1/messages?a=b&%61pi_key=mine"),
}


@pytest.mark.parametrize(("method", "target"), TARGETS.values(), ids=TARGETS)
@covers("egress.only-listed-endpoints")
def test_anything_but_a_listed_method_and_path_is_refused(method: str, target: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            await client.send(there.request(path=target, method=method))
            status, _ = await client.head()
            assert 400 <= status < 500
            assert there.far.seen == []

    run(story())


HOSTS = {
    "another host": ["host: evil.test"],
    "two hosts": ["host: api.anthropic.com", "host: evil.test"],
    "no host": [],
    "a host with a dot": ["host: api.anthropic.com."],
    "a host with a port": ["host: api.anthropic.com:8443"],
    "a host with a user": ["host: x@api.anthropic.com"],
    "a host before": ["host: evil.test, api.anthropic.com"],
}


@pytest.mark.parametrize("hosts", HOSTS.values(), ids=HOSTS)
@covers("egress.only-listed-endpoints")
def test_a_host_header_that_is_not_the_connections_is_refused(hosts: list[str], tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            request = there.request().replace(b"host: api.anthropic.com\r\n", "".join(f"{host}\r\n" for host in hosts).encode())
            await client.send(request)
            status, _ = await client.head()
            assert status in {400, 403}
            assert there.far.seen == []

    run(story())


@pytest.mark.parametrize("name", ["x-http-method-override: DELETE", "x-http-method: GET", "x-method-override: PUT"])
def test_a_method_cannot_be_overridden(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            (got,) = await there.ask(there.request(headers=(name,)))
            assert (got.status, there.far.seen) == (403, [])

    run(story())


# ── bodies ────────────────────────────────────────────────────────────────────────────────────────────────────────────

FRAMED = {
    "both lengths": b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a length that is none": b"content-length: +2\r\n\r\n{}",
    "a negative length": b"content-length: -2\r\n\r\n{}",
    "a huge length": b"content-length: 99999999999\r\n\r\n{}",
    "an unknown coding": b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding in disguise": b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a chunk that is none": b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "gzip": b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}",
    "identity": b"content-encoding: identity\r\ncontent-length: 2\r\n\r\n{}",
    "a folded header": b"x: y\r\n\tcontent-encoding: gzip\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("rest", FRAMED.values(), ids=FRAMED)
@covers("egress.bodies-strict")
def test_a_body_whose_end_or_content_can_be_read_in_two_ways_is_refused(rest: bytes, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            head = f"POST /v1/messages HTTP/1.1\r\nhost: api.anthropic.com\r\n{there.key_header}\r\ncontent-type: application/json\r\n"
            await client.send(head.encode() + rest)
            status, _ = await client.head()
            assert status in {400, 413, 415, 501}
            assert there.far.seen == []

    run(story())


@covers("egress.bodies-strict")
def test_a_body_with_two_lengths_is_refused_for_that_whichever_would_be_right(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            body = json.dumps(asking()).encode()
            for rest in (body, b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)):
                head = there.request(b"").replace(b"content-length: 0", b"content-length: %d\r\ntransfer-encoding: chunked" % len(body))
                (got,) = await there.ask(head + rest)
                assert (got.status, "two lengths" in got.said) == (400, True)
            assert there.far.seen == []

    run(story())


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":1,"a":2}', b'{"a":NaN}', b"[]", b"\xff", b'{"a":' + b"[" * 5000])
def test_a_body_that_is_not_one_plain_object_is_refused(body: bytes, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            refused, fine = await there.ask(there.request(body), there.request())
            assert (refused.status, fine.status, len(there.far.seen)) == (400, 200, 1)

    run(story())


@pytest.mark.parametrize("kind", ["", "text/plain", "multipart/form-data; boundary=x", "application/json\r\ncontent-type: text/plain"])
def test_a_body_that_does_not_say_that_it_is_json_is_refused(kind: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            told = f"content-type: {kind}\r\n".encode() if kind else b""
            (got,) = await there.ask(there.request().replace(b"content-type: application/json\r\n", told))
            assert (got.status, there.far.seen) == (415, [])

    run(story())


def test_a_body_that_is_too_long_is_refused_without_being_kept(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path, bounds=EgressBounds(body=100_000)) as there, there.inside() as client:
            head = f"POST /v1/messages HTTP/1.1\r\nhost: api.anthropic.com\r\n{there.key_header}\r\ncontent-type: application/json\r\n"
            await client.send(
                head.encode() + b"transfer-encoding: chunked\r\n\r\n" + b"ffff\r\n" + b"x" * 65_535 + b"\r\n" + b"ffff\r\n" + b"x" * 65_535
            )
            assert (await client.answer()).status == 413
            await until(lambda: there.proxy.held == 0)
            assert there.far.seen == []

    run(story())


@pytest.mark.parametrize("second", ["Type", "ty_pe", "TYPE", "typＥ"])
@covers("egress.bodies-strict")
def test_a_tool_that_says_in_two_spellings_what_it_is_does_not_arrive(second: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            tool = {second: "custom", "type": "web_search_20250305", "name": "web_search"}
            refused, fine = await there.ask(there.request(asking(tools=[tool])), there.request())
            assert (refused.status, fine.status, len(there.far.seen)) == (400, 200, 1)

    run(story())


@covers("egress.reaches-removed", "egress.reaches-refused")
def test_what_has_the_provider_reach_the_network_does_not_arrive_there(tmp_path: Path) -> None:
    tool = {"name": "read", "input_schema": {"type": "object"}}
    search = {"type": "web_search_20250305", "name": "web_search"}
    image = {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://evil.test/?data"}}]}

    async def story() -> None:
        async with session(tmp_path) as there:
            removed, refused = await there.ask(
                there.request(asking(tools=[tool, search], mcp_servers=[{"url": "https://evil.test"}])),
                there.request(asking(messages=[image])),
            )
            assert (removed.status, refused.status) == (200, 403)
            (seen,) = there.far.seen
            assert seen.json == asking(tools=[tool])
            assert [reach.what for reach in there.ledger.began[0].removed] == ["web_search_20250305", "mcp_servers"]

    run(story())


def test_a_request_that_needs_no_change_arrives_to_the_byte(tmp_path: Path) -> None:
    body = b'{ "model" : "m",\n "messages":[{"role":"user","content":"\\u00fc \xc3\xbc"}], "max_tokens": 1.0e1 }'

    async def story() -> None:
        async with session(tmp_path) as there:
            await there.ask(there.request(body))
            assert there.far.seen[0].body == body

    run(story())


# ── before TLS ────────────────────────────────────────────────────────────────────────────────────────────────────────

GREETINGS = {
    "plain HTTP": (b"GET http://api.anthropic.com/v1/models HTTP/1.1\r\nhost: api.anthropic.com\r\n\r\n", 403),
    "plain HTTP with the key": (
        b"POST http://api.anthropic.com/v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: y\r\ncontent-length: 0\r\n\r\n",
        403,
    ),
    "a path": (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", 403),
    "a web socket": (b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", 403),
    "HTTP/2 by prior knowledge": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "plain HTTP/1.0": (b"GET http://api.anthropic.com/ HTTP/1.0\r\n\r\n", 505),
    "garbage": (b"\x00\x01\x02\xff\r\n\r\n", 400),
    "TLS at once": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\n\n", 400),
    "a head without end": (b"CONNECT api.anthropic.com:443 HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, 431),
    "a long header": (b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 60_000 + b"\r\n\r\n", 431),
    "many headers": (b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
    "another port": (b"CONNECT api.anthropic.com:80 HTTP/1.1\r\nhost: x\r\n\r\n", 403),
    "no port": (b"CONNECT api.anthropic.com HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "port 0": (b"CONNECT example.com:0 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "a port too high": (b"CONNECT example.com:70000 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "a host that is not listed": (b"CONNECT example.com:443 HTTP/1.1\r\nhost: x\r\n\r\n", 403),
    "another provider": (b"CONNECT api.openai.com:443 HTTP/1.1\r\nhost: x\r\n\r\n", 403),
    "a host below": (b"CONNECT x.api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n", 403),
    "a dot at the end": (b"CONNECT api.anthropic.com.:443 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "an address": (b"CONNECT 127.0.0.1:443 HTTP/1.1\r\nhost: x\r\n\r\n", 403),
    "an address in hexadecimal": (b"CONNECT 0x7f000001:443 HTTP/1.1\r\nhost: x\r\n\r\n", 403),
    "an address as a number": (b"CONNECT 2130706433:443 HTTP/1.1\r\nhost: x\r\n\r\n", 403),
    "an address of the sixth version": (b"CONNECT [::1]:443 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "an international name": (b"CONNECT xn--pi-7ka.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n", 403),
    "letters that only look alike": ("CONNECT \u0430pi.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n".encode(), 400),
    "a user before the host": (b"CONNECT x@api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "an escaped host": (b"CONNECT api%2eanthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "a host that is too long": (b"CONNECT " + b"a." * 200 + b"com:443 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "more than CONNECT at once": (b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n\x16\x03\x01", 400),
}


@pytest.mark.parametrize(("sent", "status"), GREETINGS.values(), ids=GREETINGS)
@covers("egress.only-listed-hosts")
def test_whatever_is_no_connect_to_a_listed_host_is_refused_with_a_reason(sent: bytes, status: int, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.raw() as client:
            await client.send(sent)
            got = await client.answer()
            assert got.status == status
            assert got.said.startswith("curtainwall: ")
            assert len(got.body) < 300
            assert await client.rest() == b"", "and the connection is over"
            assert there.far.connections == 0

    run(story())


def test_capitals_in_the_host_are_the_same_host(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside("API.Anthropic.COM") as client:
            await client.send(there.request())
            assert (await client.answer()).status == 200

    run(story())


@pytest.mark.parametrize("name", [None, "evil.test", "x.api.anthropic.com", "api.anthropic.com.evil.test", "localhost"])
@covers("egress.sni-matches")
def test_a_handshake_for_another_name_or_none_is_turned_away(name: str | None, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.raw() as client:
            await client.send(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await client.head())[0] == 200
            trust = there.trust()
            trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
            assert not await shakes_hands(client, trust, name or "")
            await until(lambda: not there.proxy.connections)

    run(story())


def test_inside_tls_a_web_socket_and_the_second_version_are_refused_so_that_clients_fall_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            upgrade = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: x")
            refused, fine = await there.ask(there.request(method="GET", headers=upgrade), there.request())
            assert (refused.status, fine.status) == (426, 200)
            async with there.inside() as client:
                await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                assert (await client.answer()).status == 505
            async with there.raw() as client:
                await client.send(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n")
                await client.head()
                await client.secure(there.trust(("h2", "http/1.1")), "api.anthropic.com")
                made = client.writer.get_extra_info("ssl_object")
                assert made.selected_alpn_protocol() == "http/1.1"

    run(story())


# ── tunnels ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@covers("egress.tunnels-decided")
def test_a_tunnel_is_made_only_where_it_was_decided_and_never_to_a_private_address_by_a_public_name(tmp_path: Path) -> None:
    asked: list[HostFacts] = []

    async def decide(facts: HostFacts) -> HostDecision:
        asked.append(facts)
        return HostDecision(allowed=facts.host != "no.example.com", reason="not this one")

    async def lies(_: str, __: int) -> list[str]:
        return ["127.0.0.1"]

    async def story() -> None:
        async with session(tmp_path, decide=decide, resolve=lies) as there:
            answers: list[Got] = []
            for host in ("no.example.com", "yes.example.com", "metadata.internal", "api.openai.com"):
                async with there.raw() as client:
                    await client.send(f"CONNECT {host}:{there.far.port} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
                    answers.append(await client.answer())
            assert [got.status for got in answers] == [403, 502, 502, 403]
            assert "not this one" in answers[0].said
            assert "leads to a private address" in answers[1].said
            assert [facts.host for facts in asked] == ["no.example.com", "yes.example.com", "metadata.internal"]
            assert there.far.connections == 0

    run(story())


# ── floods and garbage ────────────────────────────────────────────────────────────────────────────────────────────────

LINES = st.sampled_from(
    [
        b"CONNECT api.anthropic.com:443 HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\n",
        b"POST /v1/messages HTTP/1.1\r\n",
        b"host: api.anthropic.com\r\n",
        b"content-length: 5\r\n",
        b"transfer-encoding: chunked\r\n",
        b"content-type: application/json\r\n",
        b"expect: 100-continue\r\n",
        b"upgrade: h2c\r\n",
        b"\r\n",
        b"\n",
        b" x\r\n",
        b": y\r\n",
        b"0\r\n\r\n",
        b"{}",
        b"\x16\x03\x01\x00\x05",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(parts=st.lists(st.one_of(LINES, st.binary(max_size=40)), max_size=12), inside=st.booleans())
@covers("egress.garbage-hurts-nobody")
def test_no_bytes_reach_a_provider_or_stop_the_proxy(fuzzed: "Fuzzed", parts: list[bytes], inside: bool) -> None:
    fuzzed.send(b"".join(parts), inside=inside)


class Fuzzed:
    """One session that many inputs are tried on, in a loop of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self._runner = asyncio.Runner()
        self._context = session(tmp_path, bounds=EgressBounds(sending=0.5, idle=0.5, handshake=2.0))
        self._there = self._runner.run(self._context.__aenter__())

    def send(self, data: bytes, *, inside: bool) -> None:
        self._runner.run(asyncio.wait_for(self._send(data, inside=inside), 90))

    async def _send(self, data: bytes, *, inside: bool) -> None:
        there = self._there
        async with there.inside() if inside else there.raw() as client:
            await client.send(data)
            if not inside:
                client.writer.write_eof()
                await client.rest()
        await until(lambda: not there.proxy.connections)
        assert (there.far.seen, there.proxy.held) == ([], 0)

    def close(self) -> None:
        async def end() -> None:
            (got,) = await self._there.ask(self._there.request())
            assert got.status == 200, "and after all of it, an honest client is served"
            await self._context.__aexit__(None, None, None)

        self._runner.run(end())
        self._runner.close()


@pytest.fixture
def fuzzed(tmp_path: Path):
    made = Fuzzed(tmp_path)
    yield made
    made.close()


@covers("egress.bounded")
def test_more_connections_than_allowed_are_closed_and_the_others_are_served(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path, bounds=EgressBounds(connections=8)) as there, there.inside() as honest:
            crowd = [await asyncio.open_unix_connection(str(there.path)) for _ in range(300)]
            await until(lambda: there.proxy.counters.turned_away >= 293)
            assert there.proxy.connections <= 8
            await honest.send(there.request())
            assert (await honest.answer()).status == 200
            for _, writer in crowd:
                writer.transport.abort()
            await until(lambda: there.proxy.connections == 1)
            (got,) = await there.ask(there.request())
            assert got.status == 200

    run(story())


@covers("egress.bounded")
def test_bodies_that_are_never_finished_are_bounded_together_and_given_up(tmp_path: Path) -> None:
    async def story() -> None:
        bounds = EgressBounds(body=1_000_000, held=2_500_000, sending=4.0)
        async with session(tmp_path, bounds=bounds) as there:
            head = f"POST /v1/messages HTTP/1.1\r\nhost: api.anthropic.com\r\n{there.key_header}\r\ncontent-type: application/json\r\n"
            sent = head.encode() + b"content-length: 1000000\r\n\r\n" + b" " * 900_000
            most = 0

            async def one() -> int:
                nonlocal most
                async with there.inside() as client:
                    await client.send(sent)
                    most = max(most, there.proxy.held)
                    return (await client.answer()).status

            statuses = await asyncio.gather(*(one() for _ in range(6)))
            assert 503 in set(statuses) <= {408, 503}
            assert most <= 2_500_000
            await until(lambda: there.proxy.held == 0)

    run(story())


def test_a_client_that_says_nothing_is_given_up_at_every_step(tmp_path: Path) -> None:
    async def story() -> None:
        bounds = EgressBounds(idle=1.5, sending=1.5, handshake=1.5)
        async with (
            session(tmp_path, bounds=bounds) as there,
            there.inside() as quiet,
            there.raw() as silent,
            there.raw() as half,
            there.raw() as unshaken,
        ):
            await half.send(b"CONNECT api.anth")
            await unshaken.send(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await silent.rest(), await quiet.rest()) == (b"", b"")
            assert b"408" in await half.rest()
            assert b"200" in await unshaken.rest()
            await until(lambda: not there.proxy.connections)

    run(story())


@covers("egress.certificates-bounded")
def test_two_thousand_names_leave_no_more_certificates_than_are_kept(tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path / "names", kept=16)
        most = 0
        for start in range(0, 2_000, 50):
            await asyncio.gather(*(authority.context(f"{secrets.token_hex(8)}.test") for _ in range(start, start + 50)))
            most = max(most, authority.size)
        assert most == 16
        authority.close()
        async with session(tmp_path) as there:
            trust = there.trust()
            trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
            for _ in range(200):
                async with there.raw() as client:
                    await client.send(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n")
                    await client.head()
                    assert not await shakes_hands(client, trust, f"{secrets.token_hex(8)}.test")
            assert there.egress.authority.size == 1
            await until(lambda: not there.proxy.connections)
            gc.collect()
            assert sum(isinstance(each, Wire) for each in gc.get_objects()) < 5, "nothing is left of those that were turned away"
            (got,) = await there.ask(there.request())
            assert got.status == 200

    run(story())


def test_a_refusal_quotes_no_more_than_a_line_of_what_was_sent(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            (got,) = await there.ask(there.request(path="/" + "a" * 5_000))
            assert (got.status, len(got.body) < 500) == (403, True)
            assert json.loads(got.body)["error"]["type"] == "permission_error"

    run(story())


def test_the_session_that_is_attacked_does_not_disturb_another(tmp_path: Path) -> None:
    async def attack(there: Session, stop: asyncio.Event) -> int:
        tried = 0
        while not stop.is_set():
            async with there.raw() as client:
                await client.send(secrets.token_bytes(64) + b"\r\n\r\n")
                await client.rest()
            tried += 1
        return tried

    async def story() -> None:
        async with session(tmp_path) as there:
            victim_path = tmp_path / "victim"
            victim = await there.egress.open(ProxyConfig((Access(there.provider, Fixed()),)), victim_path)
            stop = asyncio.Event()
            attacks = [asyncio.create_task(attack(there, stop)) for _ in range(8)]
            await until(lambda: there.proxy.counters.refused > 20)
            other = Session(there.egress, victim, victim_path, there.far, there.ledger, there.provider)
            answers = await other.ask(*(other.request() for _ in range(50)))
            stop.set()
            assert sum(await asyncio.gather(*attacks)) > 20
            assert [got.status for got in answers] == [200] * 50
            await victim.close()

    run(story())


def test_providers_of_one_session_are_told_apart(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            twice: tuple[Provider, ...] = (there.provider, there.provider)
            with pytest.raises(ValueError, match="same host"):
                await there.egress.open(ProxyConfig(tuple(Access(each, Fixed()) for each in twice)), tmp_path / "twice")

    run(story())
