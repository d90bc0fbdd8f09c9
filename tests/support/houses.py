"""Houses for tests: real policy, real meaning of calls, and a far side that counts what really ran."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from curtainwall.facts import Masker
from curtainwall.model import (
    AnyEvent,
    Batch,
    Blobs,
    CallPermitted,
    CallRequest,
    Clock,
    Digest,
    Lease,
    Limits,
    Millis,
    Mode,
    OpenSession,
    Owner,
    Place,
    Prepared,
    ReadySession,
    Route,
    SessionId,
    StreamId,
    ToolResult,
    TryLater,
    Waiting,
    Who,
    Workspace,
    session_stream,
)
from curtainwall.policy import Lists, Policy, Protection, RuleSource, load, shipped
from curtainwall.runtime import SessionGate, SessionRegistry, Stores, SystemClock
from curtainwall.session import Rules
from curtainwall.store import MemoryStore
from curtainwall.tools import NATIVE_TOOLS, Catalogue, NativeTools
from tests.support.waiting import eventually as until
from tests.support.waiting import run

ANN = Who(name="ann")
BOB = Who(name="bob")

T = TypeVar("T")


@dataclass
class FakeClock:
    """A clock that stands still until told otherwise; chance is real."""

    at: Millis = 1_700_000_000_000
    passed: Millis = 0
    sleepers: list[tuple[Millis, Millis, asyncio.Event]] = field(default_factory=list)

    def now(self) -> Millis:
        return self.at

    def elapsed(self) -> Millis:
        return self.passed

    def entropy(self, size: int) -> bytes:
        return SystemClock().entropy(size)

    async def sleep_until(self, at: Millis) -> None:
        if at > self.at:
            sleeper = (at, self.passed + at - self.at, asyncio.Event())
            self.sleepers.append(sleeper)
            await sleeper[-1].wait()

    def advance(self, millis: Millis) -> None:
        self.passed += millis
        self.jump(millis)

    def jump(self, millis: Millis) -> None:
        """Let somebody set the time of day; no time passes."""
        self.at += millis
        for at, over, woken in self.sleepers:
            if at <= self.at or over <= self.passed:
                woken.set()


@dataclass
class FarSide:
    """The world outside: a file that only grows, one line for each call that really ran."""

    path: Path
    on_run: Callable[[Prepared], None] | None = None

    async def run(self, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        if self.on_run is not None:
            self.on_run(prepared)
        with self.path.open("a") as file:
            file.write(f"{prepared.subject.tool} {prepared.arguments.get('path', '')}\n")
        return ToolResult(ok=True, value="done")

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


class FailingStore:
    """A store in memory whose disk is full, or whose inbox cannot be read, for as long as a test says so."""

    def __init__(self) -> None:
        inner = MemoryStore(SystemClock())
        self.is_full = self.is_busy = self.is_crowded = False
        self.refused = 0
        self.log, self.inbox = _FailingLog(self, inner), _FailingInbox(self, inner)
        self.leases, self.index, self.marks = _FailingLeases(self, inner), inner.index, inner.marks
        self.tallies = inner.tallies
        self.blobs: Blobs = inner.blobs


class _FailingLog:
    def __init__(self, store: FailingStore, inner: MemoryStore) -> None:
        self._store, self._log = store, inner.log
        self.read, self.watch, self.head, self.erase = self._log.read, self._log.watch, self._log.head, self._log.erase

    async def append(self, batch: Batch) -> Mapping[StreamId, int]:
        if self._store.is_full:
            self._store.refused += 1
            raise TryLater("the disk is full")
        return await self._log.append(batch)


class _FailingInbox:
    def __init__(self, store: FailingStore, inner: MemoryStore) -> None:
        self._store, self._inbox = store, inner.inbox
        self.post, self.outcome, self.streams_waiting = self._inbox.post, self._inbox.outcome, self._inbox.streams_waiting

    def waiting(self, stream: StreamId) -> Sequence[Waiting]:
        if self._store.is_busy:
            raise TryLater("the disk is busy")
        return self._inbox.waiting(stream)


class _FailingLeases:
    def __init__(self, store: FailingStore, inner: MemoryStore) -> None:
        self._store, self._leases = store, inner.leases
        self.tell = self._leases.tell

    def take(self, stream: StreamId) -> Lease | None:
        self._see_that_there_is_room()
        return self._leases.take(stream)

    def owner(self, stream: StreamId) -> Owner | None:
        self._see_that_there_is_room()
        return self._leases.owner(stream)

    def _see_that_there_is_room(self) -> None:
        if self._store.is_crowded:
            self._store.refused += 1
            raise TryLater("too many files are open")


def policy(*rules: str, protected: Sequence[Path] = (), lists: Lists | None = None) -> Policy:
    """Return the shipped policy, with rules of one's own added."""
    added = tuple(RuleSource(name=f"test-{number}.cedar", text=text, user=True) for number, text in enumerate(rules))
    return load((*shipped(), *added), lists=lists or Lists(), protection=Protection(never=tuple(str(path) for path in protected)))


def tools(far: FarSide, home: str = "/home/nobody") -> NativeTools:
    """Return the native catalogue with the far side behind every tool."""
    catalogue = Catalogue(NATIVE_TOOLS)
    runners = {spec.full_name: far.run for spec in catalogue.listing()}
    return NativeTools(catalogue, home=home, masker=Masker(key=b"k" * 32, known={}), runners=runners)


@asynccontextmanager
async def house(
    stores: Stores, rules: Rules | None = None, clock: Clock | None = None, linger: float = 2.0, patience: float = 10.0
) -> AsyncGenerator[SessionRegistry]:
    """Open a house on a store."""
    in_force = rules or Rules(policy=policy())
    async with SessionRegistry(stores, clock or SystemClock(), lambda: in_force, linger=linger, patience=patience) as opened:
        yield opened


async def open_session(
    house: SessionRegistry,
    workspace: Path,
    *,
    own: bool = True,
    mode: Mode = Mode.DEFAULT,
    by: Who = ANN,
    routes: tuple[Route, ...] = (),
    session: SessionId | None = None,
    team: str = "",
) -> SessionId:
    """Open a session that is ready for calls."""
    session = session or SessionId(house.mint())
    command = OpenSession(
        by=by,
        session=session,
        name="test",
        agent="builtin",
        model="demo",
        workspace=Workspace(path=str(workspace), own=own),
        mode=mode,
        limits=Limits(),
        policy=Digest(house.rules().policy.version),
        routes=routes,
        team=team,
    )
    await house.send(session, command)
    await house.send(session, ReadySession(by=by))
    return session


def write(path: Path | str) -> CallRequest:
    """Return the wish to write a file."""
    return CallRequest(tool="filesystem.write_file", arguments={"path": str(path), "content": "x"})


def read(path: Path | str) -> CallRequest:
    """Return the wish to read a file."""
    return CallRequest(tool="filesystem.read_file", arguments={"path": str(path)})


def events(house: SessionRegistry, session: SessionId) -> list[AnyEvent]:
    """Return everything that happened in a session."""
    return [recorded.event for recorded in house.feed.read(session_stream(session))]


def kinds(house: SessionRegistry, session: SessionId) -> list[str]:
    """Return the names of everything that happened in a session."""
    return [type(event).__name__ for event in events(house, session)]


__all__ = [
    "ANN",
    "BOB",
    "FailingStore",
    "FakeClock",
    "FarSide",
    "SessionGate",
    "events",
    "house",
    "kinds",
    "open_session",
    "policy",
    "read",
    "run",
    "tools",
    "until",
    "write",
]
