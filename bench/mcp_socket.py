"""What an agent's call costs over the session's socket, gate and durable log included, beside the same tool on the SDK's own server."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.measuring import Figure, Seconds, Side, Target, interleave
from bench.sample import CLOCK, open_house, open_session
from curtainwall.facts import Masker
from curtainwall.model import CallPermitted, Place, Prepared, ToolEffect, ToolResult, ToolSpec
from curtainwall.runtime import SessionGate, SessionRegistry
from curtainwall.tools import Catalogue, NativeTools
from curtainwall.tools.mcp_in import McpServer

_ECHO = ToolSpec(
    server="bench",
    name="echo",
    description="Say the same again.",
    schema_={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    effect=ToolEffect.INSPECT,
)
_ONE, _MANY, _AT_ONCE = 200, 2_000, 32


async def mcp_socket(home: Path) -> list[Figure]:
    """One call at a time, and 32 in flight, from another process."""
    async with open_house(home / "home") as house, _caller() as call:
        (home / "workspace").mkdir()
        async with _ours(house, home) as ours, _direct(home) as direct:

            def side(socket: Path, tool: str, count: int, in_flight: int) -> Side:
                async def run(_: int) -> Sequence[Seconds]:
                    return await call({"socket": str(socket), "tool": tool, "count": count, "in_flight": in_flight})

                return run

            took = await interleave(
                {
                    "ours": side(ours, "bench__echo", _ONE, 1),
                    "direct": side(direct, "echo", _ONE, 1),
                    "ours at once": side(ours, "bench__echo", _MANY, _AT_ONCE),
                    "direct at once": side(direct, "echo", _MANY, _AT_ONCE),
                }
            )
    alone, peer, many, peers = (took[name] for name in ("ours", "direct", "ours at once", "direct at once"))
    beside = "direct, on the SDK's server"
    return [
        Figure(
            "mediated call over the socket",
            alone.p50 * 1e3,
            "ms",
            peer.p50 * 1e3,
            beside,
            alone.to(peer),
            Target(2),
            "an echo tool, called from another process; with verdict, permit and outcome in the durable log; 1.3 ms is the stretch",
        ),
        Figure(
            "mediated calls, 32 in flight",
            1 / many.p50,
            "calls/s",
            1 / peers.p50,
            beside,
            1 / many.to(peers),
            Target(1_500, way="at least"),
            "on one session; 3,000 is the stretch",
        ),
    ]


@asynccontextmanager
async def _ours(house: SessionRegistry, home: Path) -> AsyncGenerator[Path]:
    tools = NativeTools(Catalogue([_ECHO]), home=str(home), masker=Masker(b"bench" * 8), runners={"bench.echo": _echo})
    session = await open_session(house, home / "workspace")
    path = home / "s"
    async with McpServer(session, SessionGate(house, tools), house.feed, tools.catalogue.listing, CLOCK).open(path):
        yield path


async def _echo(prepared: Prepared, _permit: CallPermitted, _place: Place) -> ToolResult:
    return ToolResult(ok=True, value=prepared.arguments["text"])


@asynccontextmanager
async def _direct(home: Path) -> AsyncGenerator[Path]:
    """Serve the same echo with the SDK's server, with nobody in between."""
    import anyio
    import mcp_types
    from mcp.server.lowlevel import Server
    from mcp.shared.message import SessionMessage

    async def call_tool(_context: Any, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=(params.arguments or {})["text"])])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](64)
        outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](64)

        async def read() -> None:
            async with to_server:
                while line := await reader.readline():
                    await to_server.send(SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)))

        async def write() -> None:
            async for message in from_server:
                writer.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

        server = Server("direct", on_call_tool=call_tool)
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            group.start_soon(write)
            await server.run(incoming, outgoing, server.create_initialization_options())
            group.cancel_scope.cancel()

    path = home / "d"
    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield path
    finally:
        server.close()


@asynccontextmanager
async def _caller() -> AsyncGenerator[Any]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.mcp_caller", stdin=pipe, stdout=pipe, limit=1024 * 1024)
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def call(told: dict[str, Any]) -> list[Seconds]:
        stdin.write(json.dumps(told).encode() + b"\n")
        return json.loads(await stdout.readline())

    try:
        yield call
    finally:
        stdin.close()
        await process.wait()
