"""The tools of teams over HTTP: a client with a team's token speaks MCP as that team, in a session or one request at a time."""

import asyncio
import hmac
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from curtainwall.facts import read_frame
from curtainwall.model import record

PATH: Final = "/mcp"
_SESSION: Final = "mcp-session-id"
_LONGEST_BODY: Final = 1_048_576
_LONGEST_LINE: Final = 16 * 1_048_576
_MOST_SESSIONS: Final = 64
_IDLE: Final = 3_600.0
_SCHEME: Final = "Bearer "
_INVALID_REQUEST: Final = -32600
_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")

Message = Mapping[str, object]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@record
class _Posted:
    """A message, and the line that forwards it to the session."""

    message: Message
    line: bytes


class CallerConnection(Protocol):
    """A team's connection to the tools."""

    async def connect(self) -> Streams:
        """Return the streams of a new connection, with one JSON-RPC message per line."""
        ...

    async def close(self, why: str) -> None:
        """Close it, with all of its streams."""
        ...


ConnectCaller = Callable[[str], CallerConnection]
"""Connects a team."""


@dataclass(slots=True)
class _Session:
    """A client that began with `initialize`."""

    team: str
    visit: CallerConnection
    streams: Streams
    used: float
    waiting: dict[str, asyncio.Queue[bytes | None]] = field(default_factory=dict[str, "asyncio.Queue[bytes | None]"])
    reading: asyncio.Task[None] | None = None


class TeamEndpoint:
    """MCP over streamable HTTP, for callers with a known token."""

    def __init__(self, tokens: Mapping[str, str], connect_caller: ConnectCaller) -> None:
        self._tokens = tokens
        self._connect_caller = connect_caller
        self._sessions: dict[str, _Session] = {}
        self._sessionless: dict[str, CallerConnection] = {}

    def app(self) -> Starlette:
        """Return the application."""
        return Starlette(routes=[Route(PATH, self._serve, methods=["GET", "POST", "DELETE"])])

    async def close(self) -> None:
        """Close all sessions and connections."""
        for name in tuple(self._sessions):
            await self._end(name, "the server has ended")
        for connection in self._sessionless.values():
            await connection.close("the server has ended")

    async def _serve(self, request: Request) -> Response:
        if request.headers.get("origin") is not None:
            # A web page in a browser is not a team, no matter under which name it reaches this machine.
            return _refused(403, "requests from web pages are not taken")
        team = self._team(request.headers.get("authorization", ""))
        if team is None:
            return _refused(401, "show the token of a team: `Authorization: Bearer TOKEN`", {"www-authenticate": "Bearer"})
        if request.method == "GET":
            return _refused(405, "nothing is told here that was not asked for", {"allow": "POST, DELETE"})
        session = self._sessions.get(request.headers.get(_SESSION, ""))
        if _SESSION in request.headers and (session is None or session.team != team):
            return _refused(404, "there is no such session; begin with `initialize`")
        if request.method == "DELETE":
            await self._end(request.headers.get(_SESSION, ""), "its client has left")
            return Response(status_code=204)
        return await self._post(request, team, session)

    async def _post(self, request: Request, team: str, session: _Session | None) -> Response:
        posted = await _read_message(request)
        if posted is None:
            return _refused(400, "send one JSON-RPC message with each key once, of a megabyte at most")
        if session is None and posted.message.get("method") == "initialize":
            name = await self._begin(team)
            return _streamed(self._replies(self._sessions[name], posted), {_SESSION: name})
        if session is not None:
            session.used = time.monotonic()
            if not _is_request(posted.message):
                await _forward(session.streams, posted)
                return Response(status_code=202)
            return _streamed(self._replies(session, posted))
        if not _is_request(posted.message):
            return Response(status_code=202)
        return _streamed(self._replies_once(team, posted))

    def _team(self, header: str) -> str | None:
        """Return the team of a token. All tokens are compared, so that the time taken reveals nothing."""
        token = header.removeprefix(_SCHEME).encode("utf-8", "replace") if header.startswith(_SCHEME) else b""
        teams = [team for team, known in self._tokens.items() if hmac.compare_digest(known.encode(), token)]
        return teams[0] if teams else None

    async def _begin(self, team: str) -> str:
        now = time.monotonic()
        idle = [name for name, session in self._sessions.items() if now - session.used > _IDLE and not session.waiting]
        own = [name for name, session in self._sessions.items() if session.team == team]
        surplus = [min(own, key=lambda name: self._sessions[name].used)] if len(own) >= _MOST_SESSIONS else []
        for name in {*idle, *surplus}:
            await self._end(name, "it was not used for long")
        connection, name = self._connect_caller(team), secrets.token_urlsafe(24)
        session = _Session(team, connection, await connection.connect(), now)
        session.reading = asyncio.create_task(_dispatch(session), name=f"mcp of team {team}")
        self._sessions[name] = session
        return name

    async def _end(self, name: str, why: str) -> None:
        session = self._sessions.pop(name, None)
        if session is None:
            return
        if session.reading is not None:
            session.reading.cancel()
        session.streams[1].close()
        await session.visit.close(why)

    async def _replies(self, session: _Session, posted: _Posted) -> AsyncGenerator[bytes]:
        """Forward a request and yield the lines that belong to it, the reply last."""
        message = posted.message
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        names = {_key(message.get("id")), *_progress_of(message)}
        if not names.isdisjoint(session.waiting):
            # The first request would never get its reply.
            yield _duplicate_id_error(message)
            return
        session.waiting.update(dict.fromkeys(names, queue))
        try:
            await _forward(session.streams, posted)
            while (line := await queue.get()) is not None:
                yield line
                if _is_reply(line):
                    return
        finally:
            session.used = time.monotonic()
            for name in names:
                session.waiting.pop(name, None)

    async def _replies_once(self, team: str, posted: _Posted) -> AsyncGenerator[bytes]:
        """Forward a request without a session, over a connection that ends with it: a client that hangs up stops waiting."""
        if team not in self._sessionless:
            self._sessionless[team] = self._connect_caller(team)
        streams = await self._sessionless[team].connect()
        try:
            await _forward(streams, posted)
            async for line in _lines(streams[0]):
                yield line
                if _is_reply(line):
                    return
        finally:
            streams[1].close()


async def _dispatch(session: _Session) -> None:
    """Put each line into the queue of the request that it belongs to."""
    async for line in _lines(session.streams[0]):
        message = cast("dict[str, object]", json.loads(line))
        params = message.get("params")
        token = cast("dict[str, object]", params).get("progressToken") if isinstance(params, dict) else None
        queue = session.waiting.get(_key(message["id"]) if "id" in message else f"progress {token!r}")
        if queue is not None:
            queue.put_nowait(line)
    for queue in session.waiting.values():
        queue.put_nowait(None)


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    half = b""
    while data := await reader.read(65_536):
        *whole, half = (half + data).split(b"\n")
        if len(half) > _LONGEST_LINE:
            return
        for line in whole:
            yield line


async def _forward(streams: Streams, posted: _Posted) -> None:
    streams[1].write(posted.line + b"\n")
    await streams[1].drain()


async def _read_message(request: Request) -> _Posted | None:
    """Return the message in a body, or None if it is invalid or ambiguous."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _LONGEST_BODY:
            return None
    try:
        message, repeated = read_frame(bytes(body))
    except ValueError:
        return None
    if not isinstance(message, dict):
        return None
    # The gate denies and logs duplicate keys in the arguments of a call; any other duplicate makes the message unanswerable.
    if any(message.get("method") != "tools/call" or path[:2] != ("params", "arguments") for path in repeated):
        return None
    # Forwarded as written, on one line: outside strings, JSON uses line ends only as whitespace.
    return _Posted(message, bytes(body).translate(_ONE_LINE))


def _streamed(lines: AsyncGenerator[bytes], headers: Mapping[str, str] | None = None) -> Response:
    async def events() -> AsyncIterator[bytes]:
        async with aclosing(lines):
            async for line in lines:
                yield b"event: message\ndata: " + line + b"\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-store", **(headers or {})})


def _refused(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": text}, status, headers=dict(headers or {}))


def _duplicate_id_error(message: Message) -> bytes:
    fault = {"code": _INVALID_REQUEST, "message": "a request with this id or this progress token is still open; take another"}
    return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": fault}).encode()


def _is_request(message: Message) -> bool:
    return "method" in message and message.get("id") is not None


def _is_reply(line: bytes) -> bool:
    message = cast("dict[str, object]", json.loads(line))
    return "method" not in message


def _key(name: object) -> str:
    return f"reply {name!r}"


def _progress_of(message: Message) -> tuple[str, ...]:
    params = message.get("params")
    meta = cast("dict[str, object]", params).get("_meta") if isinstance(params, dict) else None
    token = cast("dict[str, object]", meta).get("progressToken") if isinstance(meta, dict) else None
    return () if token is None else (f"progress {token!r}",)
