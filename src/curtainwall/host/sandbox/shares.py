"""What the sandboxes of one session may use together, and those of all sessions: places, memory and processes.

Bounds hold one command; without these, sixty commands at once would have sixty times as much. Whoever starts sandboxes for a session says
so with `charged_to`. A command waits for a free place; what lives as long as its session (tool servers, agents) needs none, but its memory
and processes count. Where control groups are open to us the kernel holds memory and processes, otherwise they are watched.
"""

import asyncio
import os
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Protocol
from weakref import WeakValueDictionary

from curtainwall.host.sandbox.confinement import MIB, ConfinementFailed

_PATIENCE: Final = 600.0
_LEAST_MEMORY: Final = 2048 * MIB


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """The most that the sandboxes of one session, and of all sessions of this process, use at the same time."""

    session_commands: int = 4
    commands: int = 8
    session_memory: int = 4096 * MIB
    memory: int = 8192 * MIB
    session_processes: int = 1024
    processes: int = 4096


def limits_of_this_machine() -> ShareLimits:
    """Return limits that leave half of this machine to everybody else, and half of that to other sessions."""
    memory = max(_machine_memory() // 2, _LEAST_MEMORY)
    cores = len(os.sched_getaffinity(0))
    return ShareLimits(commands=max(8, 4 * cores), memory=memory, session_memory=max(memory // 2, _LEAST_MEMORY))


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """What a confined family uses: its processes and threads, and its memory in bytes."""

    processes: int = 0
    memory: int = 0


class Family(Protocol):
    """A running confined process with all its children."""

    @property
    def usage(self) -> SandboxUsage:
        """Return what it used when it was last looked at."""
        ...

    def weigh(self) -> None:
        """Look at it closely, so that memory which its processes share counts once."""
        ...

    def kill(self, why: str | None = None) -> None:
        """End it and everything it started at once."""
        ...


@dataclass(eq=False)
class Share:
    """The part of one session."""

    session: str
    shares: "Shares"
    running: int = 0
    families: list[Family] = field(default_factory=list[Family])
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque[asyncio.Future[None]])

    @property
    def limits(self) -> ShareLimits:
        """Return the limits that it is held to."""
        return self.shares.limits

    @property
    def usage(self) -> SandboxUsage:
        """Return what all its sandboxes used together when they were last looked at."""
        return _sum(self.families)

    async def take_place(self) -> "CommandPlace":
        """Return a place for a command, as soon as one is free; raise `ConfinementFailed` where none is for ten minutes."""
        await self.shares.wait_for_place(self)
        return CommandPlace(self)

    def add(self, family: Family) -> None:
        """Count a sandbox that was started."""
        self.families.append(family)
        self.shares.keep(self)

    def remove(self, family: Family) -> None:
        """Count a sandbox no longer."""
        with suppress(ValueError):
            self.families.remove(family)
        self.shares.forget(self)


@dataclass(slots=True)
class CommandPlace:
    """A place that one command holds."""

    share: Share
    is_held: bool = True

    def free(self) -> None:
        """Give it back; calling it twice is harmless."""
        if self.is_held:
            self.is_held = False
            self.share.shares.free_place(self.share)


class Shares:
    """The parts of all sessions of this process. Whoever has the fewest commands running is the next to get a place."""

    def __init__(self, limits: ShareLimits | None = None) -> None:
        self.limits = limits or limits_of_this_machine()
        # INVARIANT: a session has one part for as long as anybody holds it, also while nothing of it is in use.
        self._known: WeakValueDictionary[str, Share] = WeakValueDictionary()
        self._shares: dict[str, Share] = {}
        self._running = 0

    def of(self, session: str) -> Share:
        """Return the part of a session."""
        known = self._known.get(session)
        if known is None:
            known = self._known[session] = Share(session, self)
        return known

    def keep(self, share: Share) -> None:
        """Hold on to a part that something uses."""
        self._shares[share.session] = share

    def forget(self, share: Share) -> None:
        """Let go of a part that nothing uses."""
        if not (share.running or share.families or share.waiting):
            self._shares.pop(share.session, None)

    async def wait_for_place(self, share: Share) -> None:
        """Wait until a command of a session may start."""
        self.keep(share)
        turn = asyncio.get_running_loop().create_future()
        share.waiting.append(turn)
        self._give_places()
        try:
            async with asyncio.timeout(_PATIENCE):
                await turn
        except BaseException as fault:
            if turn.done() and not turn.cancelled():
                self.free_place(share)
            else:
                with suppress(ValueError):
                    share.waiting.remove(turn)
                self.forget(share)
            if isinstance(fault, TimeoutError):
                most = f"at most {self.limits.session_commands} commands of a session run at once, and {self.limits.commands} in all"
                raise ConfinementFailed(f"no place became free in {_PATIENCE:g} seconds: {most}; try again later") from None
            raise

    def free_place(self, share: Share) -> None:
        """Give back the place of a command that has ended."""
        share.running -= 1
        self._running -= 1
        self._give_places()
        self.forget(share)

    def _give_places(self) -> None:
        while self._running < self.limits.commands:
            able = [share for share in self._shares.values() if share.waiting and share.running < self.limits.session_commands]
            if not able:
                return
            share = min(able, key=lambda one: one.running)
            turn = share.waiting.popleft()
            # Whoever had their turn comes last among those who have as much.
            self._shares[share.session] = self._shares.pop(share.session)
            if not turn.done():
                share.running += 1
                self._running += 1
                turn.set_result(None)

    def end_what_is_too_much(self, share: Share) -> None:
        """End the biggest sandbox of a session that uses more than its part, or of the session that uses most where all use too much."""
        limits = self.limits
        if _exceeds(share.families, limits.session_memory, limits.session_processes):
            _end_biggest(share.families, "the sandboxes of this session together", limits.session_memory, limits.session_processes)
        elif _exceeds([family for one in self._shares.values() for family in one.families], limits.memory, limits.processes):
            biggest = max(self._shares.values(), key=lambda one: (one.usage.memory, one.usage.processes))
            _end_biggest(biggest.families, "the sandboxes of all sessions together", limits.memory, limits.processes)


_CHARGED: ContextVar[Share | None] = ContextVar("charged", default=None)


@contextmanager
def charged_to(share: Share | None) -> Generator[None]:
    """Have the sandboxes that are started in here count as those of a session."""
    before = _CHARGED.set(share)
    try:
        yield
    finally:
        _CHARGED.reset(before)


def charged() -> Share | None:
    """Return whose sandbox is being started; None where nobody said so."""
    return _CHARGED.get()


def _sum(families: list[Family]) -> SandboxUsage:
    return SandboxUsage(sum(one.usage.processes for one in families), sum(one.usage.memory for one in families))


def _exceeds(families: list[Family], memory: int, processes: int) -> bool:
    usage = _sum(families)
    if usage.memory > memory:
        for family in families:
            family.weigh()
        usage = _sum(families)
    return usage.memory > memory or usage.processes > processes


def _end_biggest(families: list[Family], whose: str, memory: int, processes: int) -> None:
    biggest = max(families, key=lambda one: one.usage.memory / memory + one.usage.processes / processes)
    biggest.kill(f"{whose} used more than {memory // MIB} MiB of memory or {processes} processes, and it most of that")


def _machine_memory() -> int:
    """Return the memory that this process can have at all: the machine's, or that of the control group which we are in."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(path) as file:
            memory = min(memory, int(file.read()))
    return memory
