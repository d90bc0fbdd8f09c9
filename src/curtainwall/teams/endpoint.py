"""The tools of teams over HTTP: whoever shows a team's token speaks MCP as that team, in a session of its own or one request at a time."""

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


@dataclass(frozen=True, slots=True)
class _Posted:
    """A message, and the line that passes it on to the session."""

    message: Message
    line: bytes


class CallerConnection(Protocol):
    """A team's way to the tools."""

    async def connect(self) -> Streams:
        """Return a new connection, one JSON-RPC message a line."""
        ...

    async def close(self, why: str) -> None:
        """End it, with everything that is connected."""
        ...


ConnectCaller = Callable[[str], CallerConnection]
"""Lets a team in."""


@dataclass(slots=True)
class _Session:
    """One client that began with `initialize`."""

    team: str
    visit: CallerConnection
    streams: Streams
    used: float
    waiting: dict[str, asyncio.Queue[bytes | None]] = field(default_factory=dict[str, "asyncio.Queue[bytes | None]"])
    reading: asyncio.Task[None] | None = None


class TeamEndpoint:
    """MCP by streamable HTTP, for the callers whose tokens are known."""

    def __init__(self, tokens: Mapping[str, str], visits: ConnectCaller) -> None:
        self._tokens = tokens
        self._visits = visits
        self._sessions: dict[str, _Session] = {}
        self._single: dict[str, CallerConnection] = {}

    def app(self) -> Starlette:
        """Return the application."""
        return Starlette(routes=[Route(PATH, self._serve, methods=["GET", "POST", "DELETE"])])

    async def close(self) -> None:
        """Let everybody go."""
        for name in tuple(self._sessions):
            await self._end(name, "the server has ended")
        for visit in self._single.values():
            await visit.close("the server has ended")

    async def _serve(self, request: Request) -> Response:
        if request.headers.get("origin") is not None:
            # A page in somebody's browser is no team, whatever name this machine has there.
            return _refused(403, "requests from web pages are not taken")
        team = self._team(request.headers.get("authorization", ""))
        if team is None:
            return _refused(401, "show the token of a team: `Authorization: Bearer TOKEN`", {"www-authenticate": "Bearer"})
        if request.method == "GET":
            return _refused(405, "nothing is told here that was not asked for", {"allow": "POST, DELETE"})
        found = self._sessions.get(request.headers.get(_SESSION, ""))
        if _SESSION in request.headers and (found is None or found.team != team):
            return _refused(404, "there is no such session; begin with `initialize`")
        if request.method == "DELETE":
            await self._end(request.headers.get(_SESSION, ""), "its client has left")
            return Response(status_code=204)
        return await self._post(request, team, found)

    async def _post(self, request: Request, team: str, found: _Session | None) -> Response:
        posted = await _posted(request)
        if posted is None:
            return _refused(400, "send one JSON-RPC message with each key once, of a megabyte at most")
        if found is None and posted.message.get("method") == "initialize":
            name = await self._begin(team)
            return _streamed(self._asked(self._sessions[name], posted), {_SESSION: name})
        if found is not None:
            found.used = time.monotonic()
            if not _is_request(posted.message):
                await _tell(found.streams, posted)
                return Response(status_code=202)
            return _streamed(self._asked(found, posted))
        if not _is_request(posted.message):
            return Response(status_code=202)
        return _streamed(self._asked_once(team, posted))

    def _team(self, shown: str) -> str | None:
        """Return whose token this is; each is compared, so that time tells nothing."""
        token = shown.removeprefix(_SCHEME).encode("utf-8", "replace") if shown.startswith(_SCHEME) else b""
        found = [team for team, known in self._tokens.items() if hmac.compare_digest(known.encode(), token)]
        return found[0] if found else None

    async def _begin(self, team: str) -> str:
        now = time.monotonic()
        late = [name for name, session in self._sessions.items() if now - session.used > _IDLE and not session.waiting]
        own = [name for name, session in self._sessions.items() if session.team == team]
        crowd = [min(own, key=lambda name: self._sessions[name].used)] if len(own) >= _MOST_SESSIONS else []
        for name in {*late, *crowd}:
            await self._end(name, "it was not used for long")
        visit, name = self._visits(team), secrets.token_urlsafe(24)
        session = _Session(team, visit, await visit.connect(), now)
        session.reading = asyncio.create_task(_sort(session), name=f"mcp of team {team}")
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

    async def _asked(self, session: _Session, posted: _Posted) -> AsyncGenerator[bytes]:
        """Pass a request on and tell what belongs to it, the reply last."""
        message = posted.message
        heard: asyncio.Queue[bytes | None] = asyncio.Queue()
        names = {_key(message.get("id")), *_progress_of(message)}
        if not names.isdisjoint(session.waiting):
            # Whoever asked first would never hear of it again.
            yield _taken(message)
            return
        session.waiting.update(dict.fromkeys(names, heard))
        try:
            await _tell(session.streams, posted)
            while (line := await heard.get()) is not None:
                yield line
                if _is_reply(line):
                    return
        finally:
            session.used = time.monotonic()
            for name in names:
                session.waiting.pop(name, None)

    async def _asked_once(self, team: str, posted: _Posted) -> AsyncGenerator[bytes]:
        """Pass on a request that stands for itself, over a connection that ends with it: whoever hangs up no longer waits."""
        if team not in self._single:
            self._single[team] = self._visits(team)
        streams = await self._single[team].connect()
        try:
            await _tell(streams, posted)
            async for line in _lines(streams[0]):
                yield line
                if _is_reply(line):
                    return
        finally:
            streams[1].close()


async def _sort(session: _Session) -> None:
    """Bring each line to whoever waits for it."""
    async for line in _lines(session.streams[0]):
        told = cast("dict[str, object]", json.loads(line))
        params = told.get("params")
        token = cast("dict[str, object]", params).get("progressToken") if isinstance(params, dict) else None
        waiting = session.waiting.get(_key(told["id"]) if "id" in told else f"progress {token!r}")
        if waiting is not None:
            waiting.put_nowait(line)
    for waiting in session.waiting.values():
        waiting.put_nowait(None)


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    half = b""
    while data := await reader.read(65_536):
        *whole, half = (half + data).split(b"\n")
        if len(half) > _LONGEST_LINE:
            return
        for line in whole:
            yield line


async def _tell(streams: Streams, posted: _Posted) -> None:
    streams[1].write(posted.line + b"\n")
    await streams[1].drain()


async def _posted(request: Request) -> _Posted | None:
    """Return the message of a body, or None for one that is none or could be read as two."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _LONGEST_BODY:
            return None
    try:
        told, repeated = read_frame(bytes(body))
    except ValueError:
        return None
    if not isinstance(told, dict):
        return None
    # The gate denies arguments with a key twice, and logs it; nobody could answer whatever else has one.
    if any(told.get("method") != "tools/call" or path[:2] != ("params", "arguments") for path in repeated):
        return None
    # Passed on as it was written, on one line: outside strings JSON has line ends only as space.
    return _Posted(told, bytes(body).translate(_ONE_LINE))


def _streamed(lines: AsyncGenerator[bytes], headers: Mapping[str, str] | None = None) -> Response:
    async def events() -> AsyncIterator[bytes]:
        async with aclosing(lines):
            async for line in lines:
                yield b"event: message\ndata: " + line + b"\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-store", **(headers or {})})


def _refused(status: int, words: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": words}, status, headers=dict(headers or {}))


def _taken(message: Message) -> bytes:
    fault = {"code": _INVALID_REQUEST, "message": "a request with this id or this progress token is still open; take another"}
    return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": fault}).encode()


def _is_request(message: Message) -> bool:
    return "method" in message and message.get("id") is not None


def _is_reply(line: bytes) -> bool:
    told = cast("dict[str, object]", json.loads(line))
    return "method" not in told


def _key(name: object) -> str:
    return f"reply {name!r}"


def _progress_of(message: Message) -> tuple[str, ...]:
    params = message.get("params")
    meta = cast("dict[str, object]", params).get("_meta") if isinstance(params, dict) else None
    token = cast("dict[str, object]", meta).get("progressToken") if isinstance(meta, dict) else None
    return () if token is None else (f"progress {token!r}",)
