"""A TLS-terminating proxy on a Unix socket that leads every host to one plain upstream: what a container's agent reaches in these tests."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.certificates import Authority


@dataclass
class Forwarding:
    """The proxy: which hosts were wanted, and which of them it lets through (all, unless told)."""

    authority: Authority
    port: int
    wanted: list[str] = field(default_factory=list)
    only: frozenset[str] | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, ValueError, asyncio.CancelledError):
            await self._carry(reader, writer)
        writer.transport.abort()
        self._tasks.discard(task)

    async def close(self) -> None:
        """End every connection."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode().split(" ", 2)
        host = target.rpartition(":")[0]
        self.wanted.append(host)
        if method != "CONNECT" or (self.only is not None and host not in self.only):
            writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await writer.drain()
        await writer.start_tls(self.authority.server(host))
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            ways = [asyncio.create_task(_pump(reader, back)), asyncio.create_task(_pump(there, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            back.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def forwarding(socket: Path, authority: Authority, port: int, owner: int) -> AsyncGenerator[Forwarding]:
    """Serve the proxy as long as the test needs it."""
    proxy = Forwarding(authority, port)
    server = await asyncio.start_unix_server(proxy.serve, str(socket))
    os.chown(socket, owner, -1)
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await server.wait_closed()
        with suppress(FileNotFoundError):
            os.unlink(socket)
