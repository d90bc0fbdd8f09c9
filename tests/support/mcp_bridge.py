"""A bridge for the protocol's own test suite, which speaks HTTP: each POST becomes a frame on a session's socket, and back.

It also answers for what HTTP alone has (status codes, headers, session ids); none of that is ours. Names lose the server's part.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS, InboundLadderRejection, classify_inbound_request
from mcp_types.jsonrpc import HEADER_MISMATCH

from tests.support.mcp import ENVELOPE, Bare, bare

PREFIX = "test__"
_SESSIONS = 8


class Bridge:
    """HTTP sessions and the socket connections that they stand for."""

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        self._path = path
        self._stack = stack
        self._sessions: dict[str, Bare] = {}
        self._made = 0
        self._turn = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one HTTP request and close."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            verb = head[0].split(" ")[0]
            headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            status, more, told = await self._answer(verb, headers, body)
            content = b"" if told is None else json.dumps(told).encode()
            lines = [f"HTTP/1.1 {status} _", "content-type: application/json", "connection: close", f"content-length: {len(content)}"]
            if isinstance(told, list):
                content = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in told)
                lines = [f"HTTP/1.1 {status} _", "content-type: text/event-stream", "connection: close"]
            lines += [f"{name}: {value}" for name, value in more.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + content)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, verb: str, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], Any]:
        session = headers.get("mcp-session-id", "")
        if verb == "DELETE":
            return (200 if self._sessions.pop(session, None) else 404), {}, None
        if verb != "POST":
            return 405, {}, None
        frame = json.loads(body)
        if session:
            return await self._within(session, frame)
        if headers.get("mcp-protocol-version", "") >= "2026" or frame.get("method") != "initialize":
            return await self._stateless(headers, frame)
        connection = await self._stack.enter_async_context(bare(self._path))
        self._made += 1
        session = f"s{self._made}"
        self._sessions[session] = connection
        while len(self._sessions) > _SESSIONS:
            self._sessions.pop(next(iter(self._sessions))).writer.close()
        status, _, told = await self._exchange(connection, frame)
        return status, {"mcp-session-id": session}, told

    async def _within(self, session: str, frame: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        if session not in self._sessions:
            return 404, {}, None
        return await self._exchange(self._sessions[session], frame)

    async def _stateless(self, headers: Mapping[str, str], frame: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        judged = classify_inbound_request(frame, headers=headers)
        if isinstance(judged, InboundLadderRejection) and judged.code == HEADER_MISMATCH:
            return 400, {}, {"jsonrpc": "2.0", "id": frame.get("id"), "error": {"code": judged.code, "message": judged.message}}
        async with bare(self._path) as connection:
            # A socket has no header that tells the era, so the connection is brought into it first.
            await connection.ask("server/discover", {"_meta": ENVELOPE}, "era")
            return await self._exchange(connection, frame)

    async def _exchange(self, connection: Bare, frame: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        events: list[dict[str, Any]] = []
        async with self._turn:
            await connection.send(_renamed(frame))
            if "id" not in frame:
                return 202, {}, None
            while not events or events[-1].get("id") != frame["id"]:
                events.append(_renamed(await connection.next(), back=True))
        status = ERROR_CODE_HTTP_STATUS.get(events[-1].get("error", {}).get("code"), 200)
        return status, {}, events if len(events) > 1 else events[0]


def _renamed(frame: dict[str, Any], *, back: bool = False) -> dict[str, Any]:
    params = frame.get("params")
    if not back and frame.get("method") == "tools/call" and isinstance(params, dict) and isinstance(params.get("name"), str):
        params["name"] = PREFIX + params["name"]
    result = frame.get("result")
    if back and isinstance(result, dict):
        for tool in result.get("tools", ()):
            tool["name"] = tool["name"].removeprefix(PREFIX)
    return frame


@asynccontextmanager
async def bridge(path: Path) -> AsyncGenerator[str]:
    """Lend the URL behind which a socket is."""
    async with AsyncExitStack() as stack:
        server = await asyncio.start_server(Bridge(path, stack).serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        finally:
            server.close()
