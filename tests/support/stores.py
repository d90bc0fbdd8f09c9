"""Stores for tests: events to put in, both kinds of disk, real second processes, and waiting for a condition."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalExpired,
    ApprovalId,
    ApprovalWithdrawn,
    Batch,
    Blobs,
    CallDenied,
    CallFinished,
    CallId,
    CallPermitted,
    CallRequested,
    Cover,
    Digest,
    Grant,
    GrantGiven,
    GrantId,
    GrantRevoked,
    GrantScope,
    GrantUsed,
    Inbox,
    Index,
    Label,
    LabelsAdded,
    LabelSource,
    Leases,
    Limits,
    Log,
    Marks,
    Millis,
    Mode,
    Payload,
    PermitId,
    Resource,
    Role,
    RuleId,
    SendMessage,
    SessionId,
    SessionOpened,
    StreamId,
    Subject,
    ToolEffect,
    TurnEnded,
    TurnId,
    TurnStarted,
    TurnStatus,
    Verdict,
    Who,
    Workspace,
    Write,
)
from curtainwall.model import Effect as VerdictEffect
from curtainwall.store import MemoryDisk, MemoryStore, SqliteStore
from tests.support.waiting import run as run

ANN = Who(name="ann")
BOB = Who(name="bob", channel="matrix")
NOON: Millis = 1_700_000_000_000
A, B = StreamId("session:a"), StreamId("session:b")
TURN = TurnId("t1")

T = TypeVar("T")


class StillClock:
    """A clock that stands where it was set."""

    def __init__(self, at: Millis = NOON) -> None:
        self.at = at

    def now(self) -> Millis:
        return self.at

    def elapsed(self) -> Millis:
        return self.at

    def entropy(self, size: int) -> bytes:
        return os.urandom(size)

    async def sleep_until(self, at: Millis) -> None:
        self.at = max(self.at, at)


class Store(Protocol):
    """What both stores offer."""

    log: Log
    inbox: Inbox
    leases: Leases
    blobs: Blobs
    index: Index
    marks: Marks

    def close(self) -> None: ...


class Disk(Protocol):
    """Somewhere that several stores can be opened on."""

    def open(self) -> Store: ...


class InMemory:
    """A disk in memory."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.clock = StillClock()
        self.opened: list[Store] = []

    def open(self) -> Store:
        store = MemoryStore(self.clock, self.disk)
        self.opened.append(store)
        return store


class OnDisk:
    """A home directory on the real disk."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = StillClock()
        self.opened: list[Store] = []

    def open(self) -> SqliteStore:
        store = SqliteStore.open(self.home, self.clock)
        self.opened.append(store)
        return store


def batch(stream: StreamId, expected: int, *events: AnyEvent) -> Batch:
    return Batch(writes=(Write(stream, expected, events),))


def spoke(text: str = "hello", at: Millis = NOON) -> AgentSpoke:
    return AgentSpoke(at=at, turn=TURN, text=text)


def message(text: str = "hello") -> SendMessage:
    return SendMessage(by=ANN, message="m1", text=text)  # pyright: ignore[reportArgumentType] - ids are strings


def opened(session: str, at: Millis = NOON, **more: Any) -> SessionOpened:
    told: dict[str, Any] = {
        "name": f"name of {session}",
        "agent": "builtin",
        "model": "demo",
        "channel": "terminal",
        "workspace": Workspace(path=f"/work/{session}", own=True),
        "mode": Mode.DEFAULT,
        "limits": Limits(),
        "policy": Digest("p"),
        "by": ANN,
    }
    return SessionOpened(at=at, session=SessionId(session), **{**told, **more})


def requested(call: str = "c1", tool: str = "filesystem.read_file", at: Millis = NOON) -> CallRequested:
    path = Resource(role=Role.READ_PATH, value="/etc/hosts")
    subject = Subject(
        tool=tool,
        effect=ToolEffect.INSPECT,
        raw={"path": "/etc/hosts"},
        canonical={},
        resources=(path,),
        digest=Digest(f"digest of {call}"),
    )
    return CallRequested(at=at, call=CallId(call), subject=subject)


COVER = Cover(role=Role.READ_PATH, value="/etc/hosts", rules=(RuleId("outside"),))


def asked(approval: str = "ap1", call: str = "c1", at: Millis = NOON, deadline: Millis | None = None) -> ApprovalAsked:
    return ApprovalAsked(
        at=at,
        approval=ApprovalId(approval),
        call=CallId(call),
        digest=Digest(f"digest of {call}"),
        covers=(COVER,),
        shown="read `/etc/hosts`?",
        policy=Digest("p"),
        deadline=deadline,
    )


def answered(approval: str = "ap1", granted: bool = True, at: Millis = NOON + 5) -> ApprovalAnswered:
    return ApprovalAnswered(at=at, approval=ApprovalId(approval), granted=granted, by=BOB, reason="looked fine")


def expired(approval: str) -> ApprovalExpired:
    return ApprovalExpired(at=NOON + 6, approval=ApprovalId(approval))


def withdrawn(approval: str) -> ApprovalWithdrawn:
    return ApprovalWithdrawn(at=NOON + 7, approval=ApprovalId(approval), why="changed meanwhile")


def denied(call: str = "c1") -> CallDenied:
    return CallDenied(at=NOON, call=CallId(call), verdict=Verdict(effect=VerdictEffect.DENY, because=(RuleId("never"),), reason="no"))


def permitted(call: str = "c1", *labels: str) -> CallPermitted:
    return CallPermitted(
        at=NOON + 8,
        call=CallId(call),
        permit=PermitId(f"permit of {call}"),
        digest=Digest(f"digest of {call}"),
        verdict=Verdict(effect=VerdictEffect.ALLOW, because=(RuleId("inside"),)),
        labels=tuple(LabelSource(label=Label(label), call=CallId(call)) for label in labels),
    )


def finished(call: str = "c1", value: str = "the secret contents") -> CallFinished:
    return CallFinished(at=NOON + 9, call=CallId(call), permit=PermitId(f"permit of {call}"), ok=True, result=Payload(inline=value))


def labelled(*labels: str) -> LabelsAdded:
    return LabelsAdded(at=NOON, labels=tuple(LabelSource(label=Label(label), origin="a test") for label in labels))


def granted(grant: str = "g1", at: Millis = NOON, scope: GrantScope = GrantScope.SESSION) -> GrantGiven:
    return GrantGiven(at=at, grant=Grant(id=GrantId(grant), scope=scope, covers=(COVER,), by=ANN, at=at))


def revoked(grant: str = "g1", at: Millis = NOON + 3) -> GrantRevoked:
    return GrantRevoked(at=at, grant=GrantId(grant), by=ANN)


def used(grant: str = "g1", at: Millis = NOON + 3) -> GrantUsed:
    return GrantUsed(at=at, grant=GrantId(grant))


def turn_started(turn: str = "t1") -> TurnStarted:
    return TurnStarted(at=NOON, turn=TurnId(turn), messages=())


def turn_ended(status: TurnStatus = TurnStatus.DONE, turn: str = "t1") -> TurnEnded:
    return TurnEnded(at=NOON, turn=TurnId(turn), status=status)


def everything_audited() -> tuple[AnyEvent, ...]:
    """Return a session's script whose audit has twelve lines."""
    return (
        opened("a"),
        requested("c1"),
        denied("c1"),
        requested("c2"),
        asked("ap2", "c2"),
        spoke("not for the audit"),
        answered("ap2"),
        granted("g1"),
        permitted("c2", "sensitive"),
        finished("c2"),
        revoked("g1"),
        requested("c3"),
        asked("ap3", "c3"),
        expired("ap3"),
    )


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a role of `tests.support.store_process` in a real process; it is killed at the end."""
    command = [sys.executable, "-m", "tests.support.store_process", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def line_from(child: subprocess.Popen[str]) -> str:
    """Return the next line that a child prints."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def tell(child: subprocess.Popen[str], line: str = "") -> None:
    """Send a line to a child."""
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


async def next_change(changes: Any) -> frozenset[StreamId]:
    """Return the next set of changed streams, within a bound."""
    return await asyncio.wait_for(anext(changes), 60)


async def next_named(changes: Any) -> frozenset[StreamId]:
    """Return the next streams that are named; that anything may have changed is said besides, whenever somebody looks."""
    while not (named := await next_change(changes)):
        pass
    return named


async def until_named(changes: Any, wanted: Sequence[StreamId]) -> None:
    """Return once all wanted streams were named, or everything was."""
    missing = set(wanted)
    while missing:
        named = await next_change(changes)
        missing -= named or missing


def writers_of(pid: int) -> list[int]:
    """Return the processes that write for a process."""
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"scribe_entry" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return found


def is_writing(pid: int) -> bool:
    """Tell whether a process has written to a log: its connection holds the WAL open from then on."""
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            if link.readlink().name.endswith("-wal"):
                return True
    return False


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[OnDisk]:
    """Return a home that is still empty."""
    fresh = OnDisk(tmp_path / "home")
    yield fresh
    for store in fresh.opened:
        store.close()
