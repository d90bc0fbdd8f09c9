"""Limits on what the sandboxes of one session, and of all sessions, may use together: places, memory and processes.

Bounds limit one command; without shares, sixty commands at once could use sixty times as much. Code that starts sandboxes for a session
says so with `charged_to`. A command waits for a free place. Processes that live as long as their session (tool servers, agents) need none,
but their memory and processes count. The kernel enforces memory and processes if we may create control groups; otherwise we watch them.
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
from curtainwall.model import record

_MAX_WAIT: Final = 600.0
_MIN_MEMORY: Final = 2048 * MIB


@record
class ShareLimits:
    """The most that the sandboxes of one session, and of all sessions of this process, may use at the same time."""

    session_commands: int = 4
    commands: int = 8
    session_memory: int = 4096 * MIB
    memory: int = 8192 * MIB
    session_processes: int = 1024
    processes: int = 4096


def limits_of_this_machine() -> ShareLimits:
    """Return limits that leave half of this machine to other programs, and half of the rest to other sessions."""
    memory = max(_machine_memory() // 2, _MIN_MEMORY)
    cores = len(os.sched_getaffinity(0))
    return ShareLimits(commands=max(8, 4 * cores), memory=memory, session_memory=max(memory // 2, _MIN_MEMORY))


@record
class SandboxUsage:
    """The usage of a family of confined processes: its processes and threads, and its memory in bytes."""

    processes: int = 0
    memory: int = 0


class Family(Protocol):
    """A running confined process with all its children."""

    @property
    def usage(self) -> SandboxUsage:
        """Return what it used at the last check."""
        ...

    def weigh(self) -> None:
        """Measure it exactly, so that memory which its processes share counts once."""
        ...

    def kill(self, why: str | None = None) -> None:
        """End it and everything it started at once."""
        ...


@dataclass(eq=False)
class Share:
    """The share of one session."""

    session: str
    shares: "Shares"
    running: int = 0
    families: list[Family] = field(default_factory=list[Family])
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque[asyncio.Future[None]])

    @property
    def limits(self) -> ShareLimits:
        """Return the limits that apply to it."""
        return self.shares.limits

    @property
    def usage(self) -> SandboxUsage:
        """Return what all its sandboxes used together at the last check."""
        return _sum(self.families)

    async def take_place(self) -> "CommandPlace":
        """Wait for a free place for a command and return it; raise `ConfinementFailed` after ten minutes."""
        await self.shares.wait_for_place(self)
        return CommandPlace(self)

    def add(self, family: Family) -> None:
        """Start counting a sandbox."""
        self.families.append(family)
        self.shares.keep(self)

    def remove(self, family: Family) -> None:
        """Stop counting a sandbox."""
        with suppress(ValueError):
            self.families.remove(family)
        self.shares.forget(self)


@dataclass(slots=True)
class CommandPlace:
    """A place that one command holds."""

    share: Share
    is_held: bool = True

    def free(self) -> None:
        """Release the place; calling it twice is harmless."""
        if self.is_held:
            self.is_held = False
            self.share.shares.free_place(self.share)


class Shares:
    """The shares of all sessions of this process. The session with the fewest running commands gets the next place."""

    def __init__(self, limits: ShareLimits | None = None) -> None:
        self.limits = limits or limits_of_this_machine()
        # INVARIANT: a session has one share for as long as anyone refers to it, even while it uses nothing.
        self._by_session: WeakValueDictionary[str, Share] = WeakValueDictionary()
        self._in_use: dict[str, Share] = {}
        self._running = 0

    def of(self, session: str) -> Share:
        """Return the share of a session."""
        share = self._by_session.get(session)
        if share is None:
            share = self._by_session[session] = Share(session, self)
        return share

    def keep(self, share: Share) -> None:
        """Keep a share that is in use."""
        self._in_use[share.session] = share

    def forget(self, share: Share) -> None:
        """Drop a share that is not in use."""
        if not (share.running or share.families or share.waiting):
            self._in_use.pop(share.session, None)

    async def wait_for_place(self, share: Share) -> None:
        """Wait until a command of a session may start."""
        self.keep(share)
        turn = asyncio.get_running_loop().create_future()
        share.waiting.append(turn)
        self._give_places()
        try:
            async with asyncio.timeout(_MAX_WAIT):
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
                raise ConfinementFailed(f"no place became free in {_MAX_WAIT:g} seconds: {most}; try again later") from None
            raise

    def free_place(self, share: Share) -> None:
        """Release the place of a command that has ended."""
        share.running -= 1
        self._running -= 1
        self._give_places()
        self.forget(share)

    def _give_places(self) -> None:
        while self._running < self.limits.commands:
            candidates = [share for share in self._in_use.values() if share.waiting and share.running < self.limits.session_commands]
            if not candidates:
                return
            share = min(candidates, key=lambda share: share.running)
            turn = share.waiting.popleft()
            # A session that just got a place comes last among those with equally many.
            self._in_use[share.session] = self._in_use.pop(share.session)
            if not turn.done():
                share.running += 1
                self._running += 1
                turn.set_result(None)

    def end_what_is_too_much(self, share: Share) -> None:
        """Kill the biggest sandbox of this session if it exceeds its share, or of the biggest session if all together use too much."""
        limits = self.limits
        if _exceeds(share.families, limits.session_memory, limits.session_processes):
            _end_biggest(share.families, "the sandboxes of this session together", limits.session_memory, limits.session_processes)
        elif _exceeds([family for other in self._in_use.values() for family in other.families], limits.memory, limits.processes):
            biggest = max(self._in_use.values(), key=lambda other: (other.usage.memory, other.usage.processes))
            _end_biggest(biggest.families, "the sandboxes of all sessions together", limits.memory, limits.processes)


_CHARGED: ContextVar[Share | None] = ContextVar("charged", default=None)


@contextmanager
def charged_to(share: Share | None) -> Generator[None]:
    """Charge the sandboxes that are started in this block to a session."""
    token = _CHARGED.set(share)
    try:
        yield
    finally:
        _CHARGED.reset(token)


def charged() -> Share | None:
    """Return the share to charge in this context, or None."""
    return _CHARGED.get()


def _sum(families: list[Family]) -> SandboxUsage:
    return SandboxUsage(sum(family.usage.processes for family in families), sum(family.usage.memory for family in families))


def _exceeds(families: list[Family], memory: int, processes: int) -> bool:
    usage = _sum(families)
    if usage.memory > memory:
        for family in families:
            family.weigh()
        usage = _sum(families)
    return usage.memory > memory or usage.processes > processes


def _end_biggest(families: list[Family], whose: str, memory: int, processes: int) -> None:
    biggest = max(families, key=lambda family: family.usage.memory / memory + family.usage.processes / processes)
    biggest.kill(f"{whose} used more than {memory // MIB} MiB of memory or {processes} processes, and it most of that")


def _machine_memory() -> int:
    """Return how much memory this process can have: the machine's, or the limit of our control group."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(path) as file:
            memory = min(memory, int(file.read()))
    return memory
