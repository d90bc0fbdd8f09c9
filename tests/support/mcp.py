"""MCP for tests: a session behind its socket, the SDK's own client on it, and a bare socket for frames that no client would send."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types
from mcp import Client
from mcp.shared.message import SessionMessage

from curtainwall.facts import Masker
from curtainwall.model import SessionId
from curtainwall.runtime import SessionGate, SessionRegistry, Stores, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools, Runner, filesystem_runners
from curtainwall.tools.mcp_in import McpBounds, McpServer
from tests.support.houses import house, open_session

ERAS = ("legacy", "2026-07-28", "auto")
ENVELOPE = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


@dataclass
class Served:
    """A session with its socket."""

    house: SessionRegistry
    session: SessionId
    workspace: Path
    socket: Path
    door: McpServer


def native(runners: Mapping[str, Runner] | None = None, catalogue: Catalogue | None = None) -> NativeTools:
    """Return the native tools with files that really work."""
    masker = Masker(key=b"k" * 32, known={})
    return NativeTools(
        catalogue or Catalogue(NATIVE_TOOLS), home="/home/nobody", masker=masker, runners=runners or filesystem_runners(masker)
    )


@asynccontextmanager
async def serving(
    directory: Path,
    *,
    stores: Stores | None = None,
    rules: Rules | None = None,
    bounds: McpBounds | None = None,
    tools: NativeTools | None = None,
) -> AsyncGenerator[Served]:
    """Open a house with one session and its socket."""
    async with (
        house(stores or MemoryStore(SystemClock()), rules) as opened,
        session_of(opened, directory, bounds=bounds, tools=tools) as served,
    ):
        yield served


@asynccontextmanager
async def session_of(
    opened: SessionRegistry, directory: Path, *, bounds: McpBounds | None = None, tools: NativeTools | None = None, name: str = "one"
) -> AsyncGenerator[Served]:
    """Open one more session with a socket of its own."""
    workspace = directory / name
    workspace.mkdir()
    hands = tools or native()
    session = await open_session(opened, workspace)
    door = McpServer(session, SessionGate(opened, hands), opened.feed, hands.catalogue.listing, opened.clock, bounds)
    socket = directory / f"{name}.sock"
    async with door.open(socket):
        yield Served(opened, session, workspace, socket, door)


@asynccontextmanager
async def _streams(path: Path) -> AsyncGenerator[Any]:
    """Lend the stream pair that the SDK's client wants."""
    to_us, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](0)
    reader, writer = await asyncio.open_unix_connection(str(path), limit=32 * 1024 * 1024)

    async def read() -> None:
        async with to_us:
            while line := await reader.readline():
                await to_us.send(SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)))

    async def write() -> None:
        async with from_us:
            async for message in from_us:
                writer.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield incoming, outgoing
        finally:
            group.cancel_scope.cancel()
            writer.close()


def client(path: Path, mode: str = "auto", **more: Any) -> Client:
    """Return the SDK's client for a socket."""
    return Client(_streams(path), mode=mode, **more)


class Bare:
    """A socket without a client behind it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *frames: Mapping[str, Any] | bytes) -> None:
        """Send frames, each on a line, or bytes as they are."""
        for frame in frames:
            self.writer.write(frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n")
        await self.writer.drain()

    async def next(self) -> dict[str, Any]:
        """Return the next line, parsed."""
        async with asyncio.timeout(60):
            line = await self.reader.readline()
        assert line, "the connection was closed"
        return json.loads(line)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, id_: int | str = 1) -> dict[str, Any]:
        """Send a request and return the reply to it."""
        await self.send({"jsonrpc": "2.0", "id": id_, "method": method, **({} if params is None else {"params": params})})
        while (reply := await self.next()).get("id") != id_:
            pass
        return reply

    async def greet(self, version: str = "2025-11-25") -> dict[str, Any]:
        """Shake hands."""
        info = {"name": "bare", "version": "0"}
        return await self.ask("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": info}, "hello")

    async def rest(self) -> bytes:
        """Return everything until the connection is closed."""
        async with asyncio.timeout(60):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


@asynccontextmanager
async def bare(path: Path) -> AsyncGenerator[Bare]:
    """Connect without a client."""
    reader, writer = await asyncio.open_unix_connection(str(path), limit=64 * 1024 * 1024)
    try:
        yield Bare(reader, writer)
    finally:
        writer.close()


def calling(tool: str, arguments: Mapping[str, Any], id_: int | str = 1, *, token: int | str | None = None) -> dict[str, Any]:
    """Return the frame of a call in the newer era."""
    meta = {**ENVELOPE, **({} if token is None else {"progressToken": token})}
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": {"name": tool, "arguments": arguments, "_meta": meta}}
