"""A session's socket: whose it is, when it is there, what a tunnel carries, and that closing ends everything."""

import asyncio
import gc
import os
import socket
import stat
from pathlib import Path

import pytest

from curtainwall.egress import Access, EgressBounds, HostDecision, ProxyConfig
from curtainwall.model import Broken, HostFacts, TryLater
from tests.support.covers import covers
from tests.support.egress import Fixed, Streams, asking, message, says, session
from tests.support.houses import run, until


@covers("egress.socket-is-ours")
def test_the_socket_has_its_mode_and_goes_with_the_proxy(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            assert stat.S_IMODE(there.path.stat().st_mode) == 0o600
            terms = ProxyConfig((Access(there.provider, Fixed()),))
            other = await there.egress.open(terms, tmp_path / "other", mode=0o660, owner=os.getuid())
            assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o660
            with pytest.raises(TryLater, match="another process serves"):
                await there.egress.open(terms, tmp_path / "other")
            with pytest.raises(Broken, match="too long"):
                await there.egress.open(terms, tmp_path / ("x" * 120))
            await other.close()
            await other.close()
            assert not (tmp_path / "other").exists()
            again = await there.egress.open(terms, tmp_path / "other")
            (tmp_path / "other").unlink()
            (tmp_path / "other").write_text("somebody else's")
            await again.close()
            assert (tmp_path / "other").read_text() == "somebody else's"

    run(story())


def test_a_socket_that_a_dead_process_left_is_taken_over(tmp_path: Path) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
            dead.bind(str(tmp_path / "left"))
        async with session(tmp_path) as there:
            proxy = await there.egress.open(ProxyConfig((Access(there.provider, Fixed()),)), tmp_path / "left")
            there.proxy, there.path = proxy, tmp_path / "left"
            (got,) = await there.ask(there.request())
            assert got.status == 200
            await proxy.close()

    run(story())


def test_closing_ends_what_is_under_way_on_both_sides(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there, there.inside() as client:
            there.far.will(Streams(message("one")[:2], hangs=True))
            await client.send(there.request(asking(stream=True)))
            await client.head()
            async with asyncio.timeout(60):
                await there.proxy.close()
            assert there.proxy.connections == 0
            await client.rest()
            await until(lambda: there.far.left == 1)
            assert there.ledger.ends[0][2].how == "left"
            assert not there.path.exists()

    run(story())


@covers("egress.tunnels-decided")
def test_a_tunnel_carries_bytes_both_ways_and_ends_with_either_side(tmp_path: Path) -> None:
    async def decide(facts: HostFacts) -> HostDecision:
        return HostDecision(allowed=(facts.host, facts.port) == ("localhost", port))

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data.upper())
            await writer.drain()
        writer.write(b"bye")
        writer.close()

    port = 0

    async def story() -> None:
        nonlocal port
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with session(tmp_path, decide=decide) as there, there.raw() as client:
            await client.send(f"CONNECT localhost:{port} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            assert (await client.head())[0] == 200
            await client.send(b"hello" * 100_000)
            assert await client.reader.readexactly(500_000) == b"HELLO" * 100_000
            client.writer.write_eof()
            assert await client.rest() == b"bye"
            await until(lambda: not there.proxy.connections)
            assert there.proxy.counters.tunnels == 1
        server.close()

    run(story())


def test_a_tunnel_where_nothing_happens_is_closed(tmp_path: Path) -> None:
    async def decide(_: HostFacts) -> HostDecision:
        return HostDecision(allowed=True)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with session(tmp_path, decide=decide, bounds=EgressBounds(idle=0.2)) as there, there.raw() as client:
            await client.send(f"CONNECT localhost:{port} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            await client.head()
            assert await client.rest() == b""
            await until(lambda: not there.proxy.connections)
        server.close()

    run(story())


def test_counters_tell_what_happened(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            await there.ask(there.request(), there.request(path="/v1/nope"), there.request(method="GET", path="/v1/models"))
            counters = there.proxy.counters
            assert (counters.connections, counters.requests, counters.refused, counters.calls) == (1, 4, 1, 1)

    run(story())


def test_what_a_request_took_is_let_go_with_its_end_and_not_when_circles_are_looked_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path) as there:
            there.far.will(says(), Streams(message("one", "two")))
            gc.collect()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                await there.ask(there.request(), there.request(), there.request(method="GET", path="/v1/models"))
                gc.collect()
                assert [each for each in gc.garbage if type(each).__module__.startswith("curtainwall.egress")] == []
            finally:
                gc.set_debug(0)
                gc.garbage.clear()

    run(story())
