"""Tunnels that were permitted before something happened: what a session has touched since does not leave through them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from curtainwall.compose.connections import TurnNetworkGate, tunnels_of
from curtainwall.compose.external.meter import TurnMeter
from curtainwall.compose.external.processes import TurnGate
from curtainwall.egress import Authority, Decide, Egress, ProxyConfig, SessionProxy
from curtainwall.facts import Masker
from curtainwall.host import Dialler
from curtainwall.model import (
    AddLabels,
    Answer,
    AnswerApproval,
    AnyCommand,
    ApprovalAsked,
    ApprovalWithdrawn,
    CallRequest,
    ChangeMode,
    CloseSession,
    GrantGiven,
    GrantScope,
    HostFacts,
    Label,
    LabelSource,
    Mode,
    Presence,
    Save,
    Scope,
    SessionId,
    TurnAt,
    TurnId,
)
from curtainwall.policy import Lists
from curtainwall.runtime import SessionGate, SessionJournal, SessionRegistry, Stores, SystemClock
from curtainwall.runtime.gate.permits import permit_watch
from curtainwall.session import Rules, SessionState, lift
from curtainwall.store import MemoryStore, SqliteStore
from tests.support.houses import ANN, FarSide, events, open_session, policy, read, run, tools, until, write

FREELY = '@id("free") permit (principal, action == Action::"send-url", resource in Host::"free.example.com");'
TUNNELS = '@id("tunnels") permit (principal, action == Action::"use-tool", resource == Tool::"egress.connect");'
NEVER = '@id("never") forbid (principal, action == Action::"send-url", resource in Host::"free.example.com");'
MASKER = Masker(b"k" * 32)
SECRET = LabelSource(label=Label("sensitive"), origin="a test")
HARMLESS = LabelSource(label=Label("harmless"), origin="a test")
TO_PLAN = ChangeMode(by=ANN, mode=Mode.PLAN)


class Gate(SessionGate):
    """A gate after whose verdict something happens before anybody hears of it."""

    after: Callable[[], Awaitable[object]] | None = None

    async def request(
        self,
        session: SessionId,
        request: CallRequest,
        *,
        wait: bool = True,
        save: Save | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        answer = await super().request(session, request, wait=wait, save=save, presence=presence)
        after, self.after = self.after, None
        if after is not None:
            await after()
        return answer


Way = Callable[[SessionRegistry, SessionGate, SessionId], Decide]


class Far:
    """A host that repeats what it hears, and remembers it."""

    def __init__(self) -> None:
        self.heard = b""
        self.writers = list[asyncio.StreamWriter]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while data := await reader.read(1_000):
            self.heard += data
            writer.write(data)
        writer.close()


async def resolve(name: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def by_agent(opened: SessionRegistry, gate: SessionGate, session: SessionId) -> Decide:
    return TurnNetworkGate(gate, TurnAt(session=session, turn=TurnId("t")), permit_watch(opened)).decide


def by_server(opened: SessionRegistry, gate: SessionGate, session: SessionId) -> Decide:
    async def ask(session: SessionId, request: CallRequest, presence: Presence) -> Answer:
        return await gate.request(session, request, presence=presence)

    return tunnels_of(ask, session, "bad", watch=permit_watch(opened))


BOTH = pytest.mark.parametrize("way", [by_agent, by_server])


@dataclass
class Tunnel:
    """One connection out of a session, and who is at its far end."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def carries(self, words: bytes) -> bool:
        """Send something, and tell whether it came back."""
        self.writer.write(words)
        return await self.hears() == words

    async def hears(self) -> bytes:
        """Return what comes next, nothing where it is closed."""
        try:
            return await self.reader.read(1_000)
        except ConnectionError:
            return b""


@dataclass
class Scene:
    """A session whose connections lead to a far side of ours."""

    root: Path
    port: int
    far: Far
    rules: list[Rules]
    house: SessionRegistry
    gate: Gate
    session: SessionId
    proxy: SessionProxy
    _open: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self) -> Tunnel:
        reader, writer = await asyncio.open_unix_connection(self.root / "e.sock")
        self._open.append(writer)
        writer.write(f"CONNECT free.example.com:{self.port} HTTP/1.1\r\nHost: free.example.com:{self.port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head, head
        return Tunnel(reader, writer)

    async def does(self, change: AnyCommand | CallRequest) -> None:
        if isinstance(change, CallRequest):
            await self.gate.request(self.session, change)
        else:
            await self.house.send(self.session, change)

    async def answers(self, scope: GrantScope, before: int = 0) -> None:
        """Say yes to the next ask, as soon as there is one."""

        def asked() -> list[ApprovalAsked]:
            return [event for event in events(self.house, self.session) if isinstance(event, ApprovalAsked)][before:]

        await until(lambda: bool(asked()))
        await self.house.send(self.session, AnswerApproval(by=ANN, approval=asked()[0].approval, granted=True, scope=scope))

    def close(self) -> None:
        for writer in self._open:
            writer.close()


def rules_of(*rules: str) -> Rules:
    """Return rules under which what comes from the far side is no news."""
    return Rules(policy=policy(*rules, lists=Lists(hosts=("free.example.com",))))


@asynccontextmanager
async def scene(tmp_path: Path, way: Way, *rules: str, mode: Mode = Mode.DEFAULT, stores: Stores | None = None) -> AsyncGenerator[Scene]:
    far, in_force = Far(), [rules_of(*rules)]
    server = await asyncio.start_server(far.serve, "127.0.0.1", 0)
    async with SessionRegistry(stores or MemoryStore(SystemClock()), SystemClock(), lambda: in_force[0]) as opened:
        session = await open_session(opened, Path("/w"), mode=mode)
        gate = Gate(opened, tools(FarSide(tmp_path / "far")))
        egress = Egress(Authority(tmp_path / "ca"), Dialler(lambda _address, _port: Scope.PUBLIC, resolve=resolve))
        proxy = await egress.open(ProxyConfig((), decide=way(opened, gate, session)), tmp_path / "e.sock")
        here = Scene(tmp_path, server.sockets[0].getsockname()[1], far, in_force, opened, gate, session, proxy)
        yield here
        here.close()
        await proxy.close()
        egress.close()
    server.close()


@BOTH
@pytest.mark.parametrize(
    "change", [AddLabels(by=ANN, labels=(SECRET,)), TO_PLAN, CloseSession(by=ANN, reason="done"), read("/w/.env")], ids=type
)
def test_an_open_tunnel_carries_nothing_that_was_touched_after_it_was_permitted(
    tmp_path: Path, way: Way, change: AnyCommand | CallRequest
) -> None:
    async def work() -> bytes:
        async with scene(tmp_path, way, FREELY, TUNNELS) as here:
            tunnel = await here.connect()
            assert await tunnel.carries(b"before")
            await here.does(read("/w/harmless"))
            assert await tunnel.carries(b"between")
            await here.does(change)
            assert not await tunnel.carries(b"after")
            return here.far.heard

    assert run(asyncio.wait_for(work(), 20)) == b"beforebetween"


@BOTH
@pytest.mark.parametrize("change", [AddLabels(by=ANN, labels=(SECRET,)), TO_PLAN, read("/w/.env")], ids=type)
def test_what_comes_between_a_verdict_and_its_tunnel_closes_that_tunnel(tmp_path: Path, way: Way, change: AnyCommand | CallRequest) -> None:
    async def work() -> bytes:
        async with scene(tmp_path, way, FREELY, TUNNELS) as here:
            here.gate.after = lambda: here.does(change)
            tunnel = await here.connect()
            assert here.gate.after is None, "nothing came in between"
            assert not await tunnel.carries(b"after")
            return here.far.heard

    assert run(asyncio.wait_for(work(), 20)) == b""


@BOTH
def test_rules_that_come_between_a_verdict_and_its_tunnel_close_that_tunnel(tmp_path: Path, way: Way) -> None:
    async def work() -> bytes:
        async with scene(tmp_path, way, FREELY, TUNNELS) as here:

            async def reload() -> None:
                here.rules[0] = rules_of(FREELY, TUNNELS, NEVER)

            here.gate.after = reload
            tunnel = await here.connect()
            assert not await tunnel.carries(b"after")
            return here.far.heard

    assert run(asyncio.wait_for(work(), 20)) == b""


@BOTH
def test_rules_that_are_reloaded_close_a_tunnel_that_they_would_not_permit_and_no_other(tmp_path: Path, way: Way) -> None:
    async def work() -> bytes:
        async with scene(tmp_path, way, FREELY, TUNNELS) as here:
            tunnel = await here.connect()
            here.rules[0] = rules_of(FREELY, TUNNELS)
            assert await tunnel.carries(b"same")
            here.rules[0] = rules_of(FREELY, TUNNELS, NEVER)
            assert not await tunnel.carries(b"after")
            return here.far.heard

    assert run(asyncio.wait_for(work(), 20)) == b"same"


@BOTH
def test_a_list_that_loses_a_host_closes_its_tunnel(tmp_path: Path, way: Way) -> None:
    async def work() -> bytes:
        async with scene(tmp_path, way, FREELY, TUNNELS) as here:
            tunnel = await here.connect()
            here.rules[0] = rules_of(TUNNELS)
            assert not await tunnel.carries(b"after")
            return here.far.heard

    assert run(asyncio.wait_for(work(), 20)) == b""


@BOTH
@pytest.mark.parametrize("change", [AddLabels(by=ANN, labels=(HARMLESS,)), ChangeMode(by=ANN, mode=Mode.ACCEPT_EDITS)], ids=type)
def test_a_tunnel_that_would_be_permitted_again_stays_open(tmp_path: Path, way: Way, change: AnyCommand) -> None:
    async def work() -> bool:
        async with scene(tmp_path, way, FREELY, TUNNELS) as here:
            tunnel = await here.connect()
            await here.does(change)
            return await tunnel.carries(b"after")

    assert run(asyncio.wait_for(work(), 20))


@BOTH
@pytest.mark.parametrize("scope", [GrantScope.SESSION, GrantScope.PROJECT])
def test_a_grant_that_is_revoked_closes_the_tunnels_that_it_opened(tmp_path: Path, way: Way, scope: GrantScope) -> None:
    async def work() -> bytes:
        async with scene(tmp_path, way, TUNNELS) as here:
            asked, _ = await asyncio.gather(here.connect(), here.answers(scope))
            granted = await here.connect()
            # A yes to these very words still counts when the rules are read again.
            here.rules[0] = rules_of(TUNNELS)
            assert await asked.carries(b"asked ")
            assert await granted.carries(b"granted")
            [row] = here.house.stores.index.grants()
            await here.house.revoke(row.grant.id, ANN)
            assert not await asked.carries(b"after")
            assert not await granted.carries(b"after")
            return here.far.heard

    assert run(asyncio.wait_for(work(), 20)) == b"asked granted"


@BOTH
def test_an_ask_outlives_the_process_that_leaves_and_its_answer_counts_for_the_next_try(tmp_path: Path, way: Way) -> None:
    async def work() -> None:
        async with scene(tmp_path, way, TUNNELS) as here:
            trying = asyncio.create_task(here.connect())
            await until(lambda: any(isinstance(event, ApprovalAsked) for event in events(here.house, here.session)))
            await here.proxy.close()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await trying
            await here.answers(GrantScope.ONCE)
            await until(lambda: any(isinstance(event, GrantGiven) for event in events(here.house, here.session)))
            asked_for = HostFacts(host="free.example.com", port=here.port, secure=False, scope=Scope.PUBLIC)
            assert (await way(here.house, here.gate, here.session)(asked_for)).allowed
            told = events(here.house, here.session)
            assert not [event for event in told if isinstance(event, ApprovalWithdrawn)]
            assert len([event for event in told if isinstance(event, ApprovalAsked)]) == 1

    run(asyncio.wait_for(work(), 20))


@BOTH
def test_a_grant_that_another_process_revokes_closes_the_tunnels_that_it_opened(tmp_path: Path, way: Way) -> None:
    async def work() -> bytes:
        # Two stores on one file see each other as two processes do.
        async with (
            SqliteStore.open(tmp_path, SystemClock(), decode=lift) as ours,
            SqliteStore.open(tmp_path, SystemClock(), decode=lift) as theirs,
            scene(tmp_path, way, TUNNELS, stores=ours) as here,
        ):
            asked, _ = await asyncio.gather(here.connect(), here.answers(GrantScope.PROJECT))
            assert await asked.carries(b"before")
            async with SessionRegistry(theirs, SystemClock(), lambda: here.rules[0]) as other:
                [row] = other.stores.index.grants()
                await other.revoke(row.grant.id, ANN)
            assert not await asked.carries(b"after")
            return here.far.heard

    assert run(asyncio.wait_for(work(), 20)) == b"before"


@BOTH
def test_a_grant_of_another_kind_that_is_revoked_leaves_a_tunnel_that_rules_permit(tmp_path: Path, way: Way) -> None:
    async def work() -> bool:
        async with scene(tmp_path, way, FREELY, TUNNELS) as here:
            tunnel = await here.connect()
            await asyncio.gather(here.does(write("/elsewhere/file")), here.answers(GrantScope.PROJECT))
            [row] = here.house.stores.index.grants()
            await here.house.revoke(row.grant.id, ANN)
            return await tunnel.carries(b"after")

    assert run(asyncio.wait_for(work(), 20))


@BOTH
def test_a_tunnel_does_not_outlive_a_session_that_is_deleted(tmp_path: Path, way: Way) -> None:
    async def work() -> bytes:
        async with scene(tmp_path, way, FREELY, TUNNELS) as here:
            tunnel = await here.connect()
            assert await tunnel.carries(b"before")
            await here.house.delete(here.session, ANN)
            assert not await tunnel.carries(b"after")
            return here.far.heard

    assert run(asyncio.wait_for(work(), 20)) == b"before"


@BOTH
def test_a_tunnel_that_bypass_opened_does_not_outlive_it(tmp_path: Path, way: Way) -> None:
    async def work() -> bytes:
        async with scene(tmp_path, way, TUNNELS, mode=Mode.BYPASS) as here:
            tunnel = await here.connect()
            assert await tunnel.carries(b"before")
            await here.does(ChangeMode(by=ANN, mode=Mode.DEFAULT))
            assert not await tunnel.carries(b"after")
            return here.far.heard

    assert run(asyncio.wait_for(work(), 20)) == b"before"


@BOTH
def test_nothing_comes_in_either_through_a_tunnel_that_is_not_permitted_any_more(tmp_path: Path, way: Way) -> None:
    async def work() -> bytes:
        async with scene(tmp_path, way, FREELY, TUNNELS) as here:
            tunnel = await here.connect()
            assert await tunnel.carries(b"before")
            await here.does(TO_PLAN)
            here.far.writers[0].write(b"from outside")
            return await tunnel.hears()

    assert run(asyncio.wait_for(work(), 20)) == b""


def test_a_tunnel_of_a_turn_ends_with_it_although_its_process_goes_on(tmp_path: Path) -> None:
    processes = list[TurnGate]()

    def way(opened: SessionRegistry, gate: SessionGate, session: SessionId) -> Decide:
        at = TurnAt(session=session, turn=TurnId("t"))
        processes.append(present := TurnGate(gate))
        meter = TurnMeter(at, SessionState, SessionJournal(opened), opened.clock, MASKER, None)
        present.begin(meter, TurnNetworkGate(gate, at, permit_watch(opened)))
        return present.decide

    async def work() -> bytes:
        async with scene(tmp_path, way, FREELY, TUNNELS) as here:
            tunnel = await here.connect()
            assert await tunnel.carries(b"before")
            processes[0].end()
            assert not await tunnel.carries(b"after")
            return here.far.heard

    assert run(asyncio.wait_for(work(), 20)) == b"before"
