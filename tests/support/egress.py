"""A session's proxy between a client of the tests and a provider of the tests, all on this machine, with real TLS on both sides."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from curtainwall.egress import (
    ANTHROPIC,
    Access,
    Authority,
    CountedUsage,
    Egress,
    EgressBounds,
    HostDecision,
    ModelCall,
    ModelCallEnd,
    Provider,
    ProxyConfig,
    SessionProxy,
)
from curtainwall.facts import scope_of_address
from curtainwall.host import Dialler, Resolver
from curtainwall.model import Scope
from tests.support.certificates import Authority as FarAuthority

REAL = "sk-ant-api03-the-real-key-0123456789abcdefghijklmnop-AA"


@dataclass(frozen=True)
class Fixed:
    """A source with one value."""

    value: str = REAL
    is_at_hand: bool = True

    async def read(self) -> str:
        return self.value


@dataclass
class Tokens:
    """A source whose token runs out: `fresh` are those that come after the first, one for each time it is asked for a newer one."""

    value: str
    fresh: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def read(self) -> str:
        return self.value

    async def refresh(self, stale: str) -> str:
        self.asked.append(stale)
        self.value = self.fresh.pop(0)
        return self.value


@dataclass(frozen=True)
class Seen:
    """One request as the provider got it."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Saying = Callable[[Seen, asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request and says whether the connection goes on."""


def says(body: bytes | str | Any = b"{}", status: int = 200, **headers: str) -> Saying:
    """Return what answers at once and whole."""
    content = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    named = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}

    async def say(_: Seen, writer: asyncio.StreamWriter) -> bool:
        lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in named.items()), f"content-length: {len(content)}"]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        await writer.drain()
        return True

    return say


@dataclass
class Streams:
    """Answers with server-sent events, each when the test lets it go."""

    events: Sequence[bytes]
    ends: bool = True  # otherwise the connection is cut after the last event
    held: bool = False  # wait for `go` before every event but the first
    hangs: bool = False  # say nothing more after the last event
    sent: int = 0
    _go: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def go(self) -> None:
        self._go.release()

    async def __call__(self, _: Seen, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number, event in enumerate(self.events):
            if self.held and number:
                await self._go.acquire()
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
            self.sent += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.ends:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        return self.ends


def event(name: str, /, **data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def message(*pieces: str, read: int = 1000, written: int = 100, cached: int = 0) -> list[bytes]:
    """Return Anthropic's events of one reply."""
    used = {"input_tokens": read - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0, "output_tokens": 1}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [], "stop_reason": None, "usage": used}
    return [
        event("message_start", message=start),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece}) for piece in pieces),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": written}),
        event("message_stop"),
    ]


@dataclass
class Far:
    """The provider: what it will say, what it was asked, how many connections it had, and how many left in the middle of an answer."""

    port: int = 0
    replies: list[Saying] = field(default_factory=list)
    otherwise: Saying = field(default_factory=says)
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    left: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    reads: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None = None  # serve a connection in another way

    def will(self, *replies: Saying) -> None:
        self.replies += replies

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        gone = asyncio.ensure_future(writer.wait_closed())
        try:
            if self.reads is not None:
                await self.reads(reader, writer)
            goes_on = self.reads is None
            while goes_on and (seen := await _read(reader)) is not None:
                self.seen.append(seen)
                goes_on = await self._answer(seen, gone, writer)
        except OSError:
            pass
        finally:
            writer.transport.abort()
            await asyncio.gather(gone, return_exceptions=True)
            self.open.discard(writer)

    async def _answer(self, seen: Seen, gone: "asyncio.Future[None]", writer: asyncio.StreamWriter) -> bool:
        saying = asyncio.ensure_future((self.replies.pop(0) if self.replies else self.otherwise)(seen, writer))
        await asyncio.wait({saying, gone}, return_when=asyncio.FIRST_COMPLETED)
        saying.cancel()
        (told,) = await asyncio.gather(saying, return_exceptions=True)
        if isinstance(told, bool):
            return told
        self.left += 1
        return False


async def _read(reader: asyncio.StreamReader) -> Seen | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, target, headers, body, head + body)


@dataclass
class Ledger:
    """A meter that writes down what it is told, and stops where it is told to."""

    most: int | None = None  # tokens, input and output together
    refuses: str = ""
    began: list[ModelCall] = field(default_factory=list)
    counted: list[CountedUsage] = field(default_factory=list)
    ends: list[tuple[ModelCall, CountedUsage, ModelCallEnd]] = field(default_factory=list)

    async def begins(self, call: ModelCall) -> HostDecision:
        self.began.append(call)
        return HostDecision(allowed=not self.refuses, reason=self.refuses)

    def counts(self, call: ModelCall, so_far: CountedUsage) -> str | None:
        self.counted.append(so_far)
        over = self.most is not None and so_far.input_tokens + so_far.output_tokens >= self.most
        return "the budget of this session is used up" if over else None

    async def ended(self, call: ModelCall, counted: CountedUsage, ended: ModelCallEnd) -> None:
        self.ends.append((call, counted, ended))


@dataclass
class Got:
    """An answer as the client got it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def said(self) -> str:
        return self.body.decode()


@dataclass
class Inside:
    """A connection to the proxy, as a program inside would make it; everything that came back is kept in `came`."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    came: bytearray = field(default_factory=bytearray)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with suppress(ConnectionError):
            await self.writer.drain()

    async def line(self) -> bytes:
        return self._kept(await self.reader.readline())

    async def head(self) -> tuple[int, dict[str, str]]:
        first = (await self.line()).decode("latin-1")
        if not first:
            raise ConnectionResetError("nothing came")
        headers: dict[str, str] = {}
        while line := (await self.line()).decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return int(first.split(" ")[1]), headers

    async def chunk(self) -> bytes:
        """Return the next chunk of a chunked answer; nothing at its end."""
        size = int(await self.line(), 16)
        data = self._kept(await self.reader.readexactly(size + 2))
        return data[:-2]

    async def answer(self) -> Got:
        async with asyncio.timeout(60):
            status, headers = await self.head()
            if headers.get("transfer-encoding") == "chunked":
                body = b""
                while piece := await self.chunk():
                    body += piece
            elif "content-length" in headers:
                body = self._kept(await self.reader.readexactly(int(headers["content-length"])))
            else:
                body = self._kept(await self.reader.read())
            return Got(status, headers, body)

    async def rest(self) -> bytes:
        """Return everything until the connection ends."""
        async with asyncio.timeout(60):
            try:
                return self._kept(await self.reader.read())
            except OSError:
                return b""

    async def secure(self, trust: ssl.SSLContext, name: str | None) -> None:
        async with asyncio.timeout(60):
            await self.writer.start_tls(trust, server_hostname=name)

    def _kept(self, data: bytes) -> bytes:
        self.came += data
        return data


@dataclass
class Session:
    """One session's proxy and everything around it."""

    egress: Egress
    proxy: SessionProxy
    path: Path
    far: Far
    ledger: Ledger
    provider: Provider

    @property
    def sentinel(self) -> str:
        return self.proxy.sentinels[self.provider.name]

    @property
    def key_header(self) -> str:
        return f"{self.provider.keys[0].header}: {self.provider.keys[0].prefix}{self.sentinel}"

    def trust(self, alpn: Sequence[str] = ("http/1.1",)) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.egress.authority.certificate.decode())
        context.set_alpn_protocols(list(alpn))
        return context

    @asynccontextmanager
    async def raw(self) -> AsyncGenerator[Inside]:
        """Connect, and say nothing yet."""
        reader, writer = await asyncio.open_unix_connection(str(self.path), limit=2**24)
        try:
            yield Inside(reader, writer)
        finally:
            writer.transport.abort()

    @asynccontextmanager
    async def inside(self, host: str | None = None) -> AsyncGenerator[Inside]:
        """Connect to the provider, TLS included."""
        name = host or self.provider.host
        async with self.raw() as client:
            await client.send(f"CONNECT {name}:443 HTTP/1.1\r\nhost: {name}:443\r\n\r\n".encode())
            status, _ = await client.head()
            assert status == 200
            await client.secure(self.trust(), name)
            yield client

    def request(
        self, body: Any = None, path: str = "", *, method: str = "POST", headers: Sequence[str] = (), key: str | None = None
    ) -> bytes:
        """Return a request as a client would write it; with `key`, another header in the place of the right one."""
        content = b"" if method == "GET" else body if isinstance(body, bytes) else json.dumps(asking() if body is None else body).encode()
        lines = [
            f"{method} {path or self.provider.endpoints[0].path} HTTP/1.1",
            f"host: {self.provider.host}",
            *([self.key_header] if key is None else [key] if key else []),
            *headers,
            *([] if method == "GET" else ["content-type: application/json", f"content-length: {len(content)}"]),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + content

    async def ask(self, *requests: bytes) -> list[Got]:
        """Send requests one after the other on one connection."""
        async with self.inside() as client:
            got: list[Got] = []
            for request in requests:
                await client.send(request)
                got.append(await client.answer())
            return got


def asking(**more: Any) -> dict[str, Any]:
    return {"model": "claude-x", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}], **more}


@asynccontextmanager
async def far_side(scratch: Path, *, secure: bool = True) -> AsyncGenerator[tuple[Far, ssl.SSLContext]]:
    """Run a provider, and return it with what trusts its certificate."""
    authority, far = FarAuthority(scratch), Far()
    context = authority.server("localhost") if secure else None
    server = await asyncio.start_server(far.serve, "127.0.0.1", 0, ssl=context, limit=2**24)
    far.port = server.sockets[0].getsockname()[1]
    try:
        yield far, authority.trust
    finally:
        server.close()
        async with asyncio.timeout(60):
            while far.open:
                for writer in tuple(far.open):
                    writer.transport.abort()
                await asyncio.sleep(0)
        await server.wait_closed()


def scope_of(address: str, port: int) -> Scope:
    return scope_of_address(address, port)


@asynccontextmanager
async def session(
    tmp_path: Path,
    provider: Provider = ANTHROPIC,
    *,
    source: Any = None,
    oauth: bool = False,
    bounds: EgressBounds | None = None,
    ledger: Ledger | None = None,
    resolve: Resolver | None = None,
    **terms: Any,
) -> AsyncGenerator[Session]:
    """Run one session's proxy, with a provider behind it that is where the test's user configured it."""
    async with far_side(tmp_path) as (far, trust):
        there = provider.at(f"https://localhost:{far.port}")
        dialler = replace(Dialler(scope_of, trust=trust), **({"resolve": resolve} if resolve else {}))
        egress = Egress(Authority(tmp_path / "ca"), dialler)
        book = ledger or Ledger()
        access = Access(there, source or Fixed(), oauth=oauth)
        proxy = await egress.open(ProxyConfig((access,), book, bounds=bounds or EgressBounds(), **terms), tmp_path / "p")
        try:
            yield Session(egress, proxy, tmp_path / "p", far, book, there)
        finally:
            await proxy.close()
            egress.close()
