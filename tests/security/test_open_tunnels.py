"""Tunnels that were permitted before something happened: what a session has touched since does not leave through them."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from curtainwall.app.reaching import AtTheGate
from curtainwall.app.standing import watch_in
from curtainwall.app.tunnels import tunnels_of
from curtainwall.egress import Authority, Decide, Egress, Terms
from curtainwall.host import Dialler
from curtainwall.model import (
    AddLabels,
    AnyCommand,
    CallRequest,
    ChangeMode,
    Label,
    LabelSource,
    Mode,
    Scope,
    SessionId,
    TurnAt,
    TurnId,
)
from curtainwall.runtime import House, SessionGate, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from tests.support.houses import ANN, FarSide, house, open_session, policy, read, run, tools

FREELY = '@id("free") permit (principal, action == Action::"send-url", resource in Host::"free.example.com");'
TUNNELS = '@id("tunnels") permit (principal, action == Action::"use-tool", resource == Tool::"egress.connect");'
SECRET = LabelSource(label=Label("sensitive"), origin="a test")


Way = Callable[[House, SessionGate, SessionId], Decide]


class Far:
    """A host that repeats what it hears, and remembers it."""

    def __init__(self) -> None:
        self.heard = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1_000):
            self.heard += data
            writer.write(data)
        writer.close()


async def resolve(name: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def by_agent(opened: House, gate: SessionGate, session: SessionId) -> Decide:
    return AtTheGate(gate, TurnAt(session=session, turn=TurnId("t")), watch_in(opened)).decide


def by_server(opened: House, gate: SessionGate, session: SessionId) -> Decide:
    return tunnels_of(gate.request, session, "bad", watch=watch_in(opened))


async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, words: bytes) -> bytes:
    """Send through a tunnel and return what comes back, nothing where it is closed."""
    writer.write(words)
    try:
        return await reader.read(1_000)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("way", [by_agent, by_server])
@pytest.mark.parametrize("change", [AddLabels(by=ANN, labels=(SECRET,)), ChangeMode(by=ANN, mode=Mode.PLAN), read("/w/.env")], ids=type)
def test_an_open_tunnel_carries_nothing_that_was_touched_after_it_was_permitted(
    tmp_path: Path, way: Way, change: AnyCommand | CallRequest
) -> None:
    async def work() -> bytes:
        far = Far()
        server = await asyncio.start_server(far.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with house(MemoryStore(SystemClock()), Rules(policy=policy(FREELY, TUNNELS))) as opened:
            session = await open_session(opened, Path("/w"))
            gate = SessionGate(opened, tools(FarSide(tmp_path / "far")))
            egress = Egress(Authority(tmp_path / "ca"), Dialler(lambda _address, _port: Scope.PUBLIC, resolve=resolve))
            proxy = await egress.open(Terms((), decide=way(opened, gate, session)), tmp_path / "e.sock")
            reader, writer = await asyncio.open_unix_connection(tmp_path / "e.sock")
            writer.write(f"CONNECT free.example.com:{port} HTTP/1.1\r\nHost: free.example.com:{port}\r\n\r\n".encode())
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            assert await said(reader, writer, b"before") == b"before"
            await gate.request(session, read("/w/harmless"))
            assert await said(reader, writer, b"between") == b"between"
            if isinstance(change, CallRequest):
                await gate.request(session, change)
            else:
                await opened.send(session, change)
            assert await said(reader, writer, b"after") == b""
            writer.close()
            await proxy.close()
            egress.close()
        server.close()
        return far.heard

    assert run(work()) == b"beforebetween"
