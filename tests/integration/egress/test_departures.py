"""Clients that reset their connection at every point of a call: what the call used is in the log exactly once all the same."""

import asyncio
import json
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from curtainwall.compose.external.meter import TurnMeter
from curtainwall.egress import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    Access,
    CountedUsage,
    Dialect,
    EgressBounds,
    ModelCall,
    ModelCallEnd,
    Provider,
    ProxyConfig,
    SessionProxy,
)
from curtainwall.facts import Masker
from curtainwall.model import (
    BudgetKind,
    MessageId,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    RaiseBudget,
    SendMessage,
    StartTurn,
    TurnAt,
    TurnId,
)
from curtainwall.runtime import Actor, SessionJournal, SystemClock
from curtainwall.store import MemoryStore
from tests.support.covers import covers
from tests.support.dialects import STREAMS
from tests.support.egress import Fixed, Inside, Ledger, Seen, Session, Streams, asking, message, session
from tests.support.houses import ANN, events, house, open_session, run, until
from tests.support.talking import of

TURN = TurnId("turn")
MASKER = Masker(b"k" * 32)
AT_ONCE = 16
EACH = 16
POINTS = ("sent", "head", "first", "last", "end")
RESET = struct.pack("ii", 1, 0)
WHOLE = {
    "model": "claude-x",
    "content": [{"type": "text", "text": "x" * 200}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 700, "output_tokens": 77},
}


@dataclass
class Paced:
    """Answers with so many pieces, and with the rest when its client has left; the whole is one reply."""

    head: bytes
    pieces: Sequence[bytes]
    first: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, _: Seen, writer: asyncio.StreamWriter) -> bool:
        for number, piece in enumerate((self.head, *self.pieces)):
            if number == self.first:
                await writer.drain()
                await self.gone.wait()
            writer.write(piece)
        await writer.drain()
        return True


def paced(replies: Sequence[bytes], first: int) -> Paced:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return Paced(head, [*(b"%x\r\n%b\r\n" % (len(each), each) for each in replies), b"0\r\n\r\n"], first)


def whole_in_pieces(_: Sequence[bytes], first: int) -> Paced:
    content = json.dumps(WHOLE).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n".encode()
    return Paced(head, [content[:20], content[20:]], first)


def provider_of(dialect: Dialect) -> tuple[Provider, str]:
    provider = next(each for each in (ANTHROPIC, OPENAI, GEMINI) if any(end.dialect is dialect for end in each.endpoints))
    return provider, next(end.path for end in provider.endpoints if end.dialect is dialect and end.model).replace("NAME", "gemini-x")


@asynccontextmanager
async def on_a_port(there: Session, meter: Any) -> AsyncGenerator[tuple[SessionProxy, int]]:
    """Serve the session's proxy on a port of this machine, as it is at the end of a bridge: only there can a client send a reset."""
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = await there.egress.serve(ProxyConfig((Access(there.provider, Fixed()),), meter), listener)
    try:
        yield proxy, listener.getsockname()[1]
    finally:
        await proxy.close()


@asynccontextmanager
async def resetting(there: Session, proxy: SessionProxy, port: int) -> AsyncGenerator[Inside]:
    """Connect to the provider through the proxy, and reset the connection in the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    there.proxy = proxy
    try:
        client, name = Inside(reader, writer), there.provider.host
        await client.send(f"CONNECT {name}:443 HTTP/1.1\r\nhost: {name}:443\r\n\r\n".encode())
        assert (await client.head())[0] == 200
        await client.secure(there.trust(), name)
        yield client
    finally:
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.writer.transport.abort()


async def leave_at(point: str, client: Inside, size: int, is_there: Callable[[], bool]) -> None:
    """Return when so much of a reply of this size has come."""
    async with asyncio.timeout(60):
        if point == "sent":
            await until(is_there)
            return
        _, headers = await client.head()
        if point == "head":
            return
        if "content-length" in headers:
            await client.reader.readexactly(20 if point in ("first", "last") else size)
            return
        came = len(await client.chunk())
        while point != "first" and came < size:
            came += len(await client.chunk())
        if point == "end":
            assert not await client.chunk()


def first_of(point: str, pieces: int) -> int:
    """Return how much the provider says before its client leaves."""
    return {"sent": 0, "head": 1, "first": 2, "last": pieces, "end": pieces + 1}[point]


@asynccontextmanager
async def turn(tmp_path: Path) -> AsyncGenerator[tuple[Actor, TurnMeter, Any]]:
    async with house(MemoryStore(SystemClock())) as opened:
        name = await open_session(opened, tmp_path)
        async with opened.hold(name) as actor:
            await actor.submit(SendMessage(by=ANN, message=MessageId("m"), text="go"))
            await actor.submit(StartTurn(by=ANN, turn=TURN))
            for kind in BudgetKind:
                await actor.submit(RaiseBudget(by=ANN, kind=kind, limit=10**9))
            meter = TurnMeter(TurnAt(session=name, turn=TURN), lambda: actor.state, SessionJournal(opened), opened.clock, MASKER, None)
            yield actor, meter, lambda: events(opened, name)


@pytest.mark.parametrize("name", [*STREAMS, "whole"])
@covers("egress.counted-once")
def test_every_call_is_counted_once_wherever_its_client_resets_the_connection(name: str, tmp_path: Path) -> None:
    dialect, replies, expected = STREAMS.get(name) or (Dialect.ANTHROPIC, [], CountedUsage(700, 77, 0, measured=True))
    provider, path = provider_of(dialect)
    room = asyncio.Semaphore(AT_ONCE)

    async def story() -> None:
        async with turn(tmp_path) as (actor, meter, told), session(tmp_path, provider) as there, on_a_port(there, meter) as (proxy, port):
            pieces = len(replies) + 1 if replies else 2

            size = sum(map(len, replies)) or len(json.dumps(WHOLE))
            waiting: dict[str, Paced] = {}

            async def answers(seen: Seen, writer: asyncio.StreamWriter) -> bool:
                return await waiting.pop(seen.json["messages"][0]["content"])(seen, writer)

            async def one(point: str, number: int) -> None:
                async with room:
                    name = f"{point} {number}"
                    reply = waiting[name] = (paced if replies else whole_in_pieces)(replies, first_of(point, pieces))
                    async with resetting(there, proxy, port) as client:
                        asked = {"model": "m", "stream": bool(replies), "messages": [{"role": "user", "content": name}]}
                        await client.send(there.request(asked, path))
                        await leave_at(point, client, size, lambda: name not in waiting)
                    reply.gone.set()

            there.far.otherwise = answers
            for point in POINTS:
                await asyncio.gather(*(one(point, number) for number in range(EACH)))
                await until(lambda: not actor.state.requests)
            await until(lambda: len(of(ModelRequested, told())) == len(POINTS) * EACH)
            await proxy.close()
            ends = Counter(event.request for event in (*of(ModelResponded, told()), *of(ModelFailed, told())))
            assert ends == Counter(event.request for event in of(ModelRequested, told())), "each call that began ended once"
            used = {(event.usage.input_tokens, event.usage.output_tokens) for event in of(ModelResponded, told())}
            assert used == {(expected.input_tokens, expected.output_tokens)}, "as the provider counted it, however early the client left"
            assert not of(ModelFailed, told())
            assert actor.state.spent.tokens == len(POINTS) * EACH * (expected.input_tokens + expected.output_tokens)

    run(story())


@dataclass
class Slow(Ledger):
    """A ledger that takes its time, until it is let go."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    is_ending: asyncio.Event = field(default_factory=asyncio.Event)

    async def ended(self, call: ModelCall, counted: CountedUsage, ended: ModelCallEnd) -> None:
        self.is_ending.set()
        await self.go.wait()
        await super().ended(call, counted, ended)


@covers("egress.counted-once")
def test_a_call_whose_client_leaves_while_it_is_written_down_is_written_down(tmp_path: Path) -> None:
    async def story() -> None:
        ledger = Slow()
        async with session(tmp_path, ledger=ledger) as there:
            there.far.will(Streams(message("one", written=42)))
            async with there.inside() as client:
                await client.send(there.request(asking(stream=True)))
                await client.answer()
                await ledger.is_ending.wait()
            await until(lambda: not there.proxy.connections)
            ledger.go.set()
            await until(lambda: there.ledger.ends)
            ((_, counted, ended),) = there.ledger.ends
            assert (counted.output_tokens, ended.how) == (42, "done")
            assert there.proxy.held == 0

    run(story())


@covers("egress.counted-once")
def test_closing_the_proxy_waits_until_the_calls_are_written_down_but_not_for_ever(tmp_path: Path) -> None:
    async def story() -> None:
        ledger = Slow()
        async with session(tmp_path, ledger=ledger, bounds=EgressBounds(accounting=1.0)) as there, there.inside() as client:
            there.far.will(Streams(message("one")[:3], hangs=True))
            await client.send(there.request(asking(stream=True)))
            await client.head()
            await client.chunk()
            began = time.monotonic()
            async with asyncio.timeout(60):
                await there.proxy.close()
            assert time.monotonic() - began >= 1, "it waited for the account"
            assert not ledger.ends
            ledger.go.set()
            await until(lambda: ledger.ends)
            ((_, counted, ended),) = ledger.ends
            assert (counted.input_tokens, ended.how) == (1000, "left")
        assert len(ledger.ends) == 1

    run(story())


def test_calls_without_a_client_take_the_places_of_clients(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path, bounds=EgressBounds(connections=3, reading_on=60.0)) as there:
            for _ in range(3):
                there.far.will(Streams(message("one")[:3], hangs=True))
                async with there.inside() as client:
                    await client.send(there.request(asking(stream=True)))
                    await client.head()
                    await client.chunk()
            await until(lambda: not there.proxy.connections)
            assert there.proxy.held > 0, "what they sent is held as long as they go on"
            async with there.raw() as client:
                await client.send(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nhost: x\r\n\r\n")
                assert await client.rest() == b""
            assert there.proxy.counters.turned_away == 1
            await there.proxy.close()
            assert [ended.how for _, _, ended in there.ledger.ends] == ["left"] * 3
            assert there.proxy.held == 0

    run(story())
