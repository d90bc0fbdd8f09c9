"""One end of a connection over a pair of sockets, with TLS and without."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from curtainwall.host import Wire
from tests.support.certificates import Authority
from tests.support.houses import run, until

LONG = b"0123456789" * 200_000

Making = Callable[[Path], AbstractAsyncContextManager[tuple[Wire, Wire]]]


@asynccontextmanager
async def pair() -> AsyncGenerator[tuple[Wire, Wire]]:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    (_, one), (_, other) = [await loop.create_unix_connection(Wire, sock=each) for each in (near, far)]
    try:
        yield one, other
    finally:
        one.abort()
        other.abort()
        await until(lambda: one.is_lost and other.is_lost)


@asynccontextmanager
async def secured(tmp_path: Path) -> AsyncGenerator[tuple[Wire, Wire]]:
    authority = Authority(tmp_path)
    async with pair() as (server, client):
        await asyncio.gather(server.secure(authority.server("box.lan"), 30), client.secure(authority.trust, 30, server="box.lan"))
        yield server, client


async def whole(wire: Wire, size: int) -> bytes:
    came = b""
    while len(came) < size:
        came += await wire.read(30)
    return came


@pytest.mark.parametrize("made", [lambda _: pair(), secured], ids=["plain", "tls"])
def test_what_is_written_is_read_at_the_pace_of_the_reader(made: Making, tmp_path: Path) -> None:
    async def story() -> None:
        async with made(tmp_path) as (one, other):
            one.write(LONG)
            with pytest.raises(TimeoutError):
                await one.drain(0.2)
            assert await whole(other, len(LONG)) == LONG
            await one.drain(30)
            assert one.is_quiet
            assert other.is_quiet

    run(story())


def test_what_was_sent_before_the_end_is_read_and_then_the_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with secured(tmp_path) as (server, client):
            server.write(b"bye")
            server.finish()
            assert await client.read(30) == b"bye"
            assert await client.read(30) == b""
            assert not client.is_quiet

    run(story())


@pytest.mark.parametrize("made", [lambda _: pair(), secured], ids=["plain", "tls"])
def test_one_that_does_not_read_does_not_keep_us_from_closing(made: Making, tmp_path: Path) -> None:
    async def story() -> None:
        async with made(tmp_path) as (one, other):
            other.transport.pause_reading()
            one.write(LONG)
            one.finish(0.2)
            await until(lambda: one.is_lost)

    run(story())


def test_one_that_ends_its_side_without_a_word_and_does_not_read_is_let_go(tmp_path: Path) -> None:
    async def story() -> None:
        async with secured(tmp_path) as (one, other):
            other.transport.pause_reading()
            one.write(LONG)
            other.transport.write_eof()
            assert await one.read(30) == b""
            one.finish()
            await until(lambda: one.is_lost)

    run(story())


def test_an_end_without_a_word_of_tls_is_an_end_and_a_broken_record_is_a_fault(tmp_path: Path) -> None:
    async def story() -> None:
        async with secured(tmp_path) as (server, client):
            server.transport.abort()
            assert await client.read(30) == b""
        async with secured(tmp_path) as (server, client):
            server.transport.write(b"\x17\x03\x03\x00\x20" + b"x" * 32)
            with pytest.raises(ConnectionResetError):
                await client.read(30)

    run(story())


def test_a_handshake_fails_with_its_reason_or_ends_in_time(tmp_path: Path) -> None:
    async def story() -> None:
        authority = Authority(tmp_path)
        async with pair() as (server, client):
            shaking = asyncio.ensure_future(server.secure(authority.server("box.lan"), 30))
            with pytest.raises(ssl.SSLCertVerificationError):
                await client.secure(authority.trust, 30, server="other.lan")
            with pytest.raises(OSError, match=r"alert|gone"):
                await shaking
        async with pair() as (server, _):
            with pytest.raises(TimeoutError):
                await server.secure(authority.server("box.lan"), 0.2)

    run(story())


def test_pieces_of_a_record_do_not_put_off_the_time_for_a_whole_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with secured(tmp_path) as (server, client):
            server.transport.write(b"\x17\x03\x03\x40\x00")

            async def trickle() -> None:
                while not server.transport.is_closing():
                    server.transport.write(b"x")
                    await asyncio.sleep(0.01)

            trickling = asyncio.ensure_future(trickle())
            reading = asyncio.ensure_future(client.read(0.3))
            await asyncio.wait((reading,), timeout=10)
            trickling.cancel()
            with pytest.raises(TimeoutError):
                reading.result()

    run(story())
