"""A socket in front of a Docker engine that can keep a wish for a while, or lose it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.docker_engine import DockerEngine

LetsPass = Callable[[bytes], Awaitable[bool]]
"""Sees the first line of whatever comes, and tells whether it goes on; where it does not, the connection ends."""


@asynccontextmanager
async def relayed(engine: DockerEngine, place: Path, lets_pass: LetsPass) -> AsyncGenerator[DockerEngine]:
    """Lend the engine through a socket at a place of its own."""
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                if not await lets_pass(data.split(b"\r\n", 1)[0]):
                    return
                writer.write(data)
                await writer.drain()
        finally:
            writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(engine.socket))
        for ways in ((reader, back), (there, writer)):
            tasks.add(asyncio.create_task(pump(*ways)))

    server = await asyncio.start_unix_server(serve, str(place))
    try:
        yield DockerEngine(place)
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
