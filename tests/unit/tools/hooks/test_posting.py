"""Http hooks, against a real server on this machine."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from curtainwall.tools.hooks import Hook, HttpHook, read_settings
from curtainwall.tools.hooks.process import MOST_OUTPUT, HookRun, post_event
from tests.support.certificates import Authority
from tests.support.covers import covers
from tests.support.houses import run

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def endpoint(url: str, **rest: Any) -> HttpHook:
    told = {"hooks": {"Stop": [{"hooks": [{"type": "http", "url": url, **rest}]}]}}
    hook: Hook = read_settings(told, directory="/", strict=True).hooks[0]
    assert isinstance(hook.action, HttpHook)
    return hook.action


@asynccontextmanager
async def serving(handle: Handle, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


def answering(status: str, body: bytes = b"", *headers: str) -> Handle:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers)
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()

    return handle


def posted(handle: Handle, seconds: float = 20, told: bytes = b"{}", environ: dict[str, str] | None = None, **rest: Any) -> HookRun:
    async def story() -> HookRun:
        async with serving(handle) as port:
            return await post_event(endpoint(f"http://127.0.0.1:{port}/hook?x=1", **rest), told, environ or {}, seconds)

    return run(story())


@covers("hooks.http")
def test_the_event_is_posted_and_the_body_is_the_answer() -> None:
    seen: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length"))
        seen.extend([head, (await reader.readexactly(length)).decode()])
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"decision":"block"}')
        await writer.drain()

    headers = {"Authorization": "Bearer $TOKEN", "X-Other": "${OTHER}.", "Host": "elsewhere", "Content-Length": "5"}
    found = posted(
        handle, told=json.dumps({"a": "ü"}).encode(), environ={"TOKEN": "t1", "OTHER": "o1"}, headers=headers, allowedEnvVars=["TOKEN"]
    )
    assert found == HookRun(out=b'{"decision":"block"}')
    head, body = seen
    assert head.startswith("POST /hook?x=1 HTTP/1.1\r\n")
    assert "Authorization: Bearer t1\r\n" in head
    assert "X-Other: .\r\n" in head
    assert "elsewhere" not in head
    assert json.loads(body) == {"a": "ü"}


@pytest.mark.parametrize("status", ["199 Odd", "204 No Content", "301 Moved", "400 Bad", "403 No", "500 Oh", "503 Later"])
def test_everything_but_2xx_is_a_failure_and_no_redirect_is_followed(status: str) -> None:
    found = posted(answering(status, b"", "Location: http://127.0.0.1:1/"))
    assert bool(found.failure) is (not status.startswith("2"))


def test_an_answer_that_is_too_big_or_no_http_is_a_failure() -> None:
    assert posted(answering("200 OK", b"x" * (MOST_OUTPUT + 1))).failure

    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\xff" * 100_000)
        await writer.drain()

    assert posted(garbage).failure


def test_a_server_that_takes_its_time_is_a_failure() -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    assert posted(never, seconds=0.3).failure == "it did not answer within 0.3 seconds"


def test_nobody_there_is_a_failure() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        found = run(post_event(endpoint(f"http://127.0.0.1:{bound.getsockname()[1]}/"), b"{}", {}, 60))
    assert found.failure.startswith("it cannot be reached")


def test_a_variable_cannot_bring_another_header() -> None:
    found = posted(answering("200 OK"), environ={"T": "x\r\nX-Evil: 1"}, headers={"A": "$T"}, allowedEnvVars=["T"])
    assert found.failure == "the request could not be written as HTTP"


def test_plain_http_at_a_tls_port_and_the_reverse_are_failures(tmp_path: Path) -> None:
    async def plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async def story() -> tuple[HookRun, HookRun]:
        async with serving(plainly) as port:
            plain = await post_event(endpoint(f"https://127.0.0.1:{port}/"), b"{}", {}, 60)
        async with serving(answering("200 OK"), Authority(tmp_path).server("box.lan")) as port:
            return plain, await post_event(endpoint(f"http://127.0.0.1:{port}/"), b"{}", {}, 60)

    plain, secured = run(story())
    assert plain.failure.startswith("it cannot be reached")
    assert secured.failure
    assert "60 seconds" not in plain.failure + secured.failure
