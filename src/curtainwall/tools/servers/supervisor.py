"""Supervise the running servers: start them on first use, restart them with increasing delays, and stop them with all their children."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from curtainwall.facts import Masker
from curtainwall.model import Mode, Place, SessionId, record, stricter
from curtainwall.tools.servers.client import ServerClient, ServerLost, ServerRefused, ServerSilent
from curtainwall.tools.servers.launch import CannotStart, LaunchMachine, launch
from curtainwall.tools.servers.offered import OfferedTool, tools_by_name
from curtainwall.tools.servers.spec import ServerSpec
from curtainwall.tools.servers.stdio import StderrLog

MOST: Final = 64
"""Servers that may run at once; at the limit, an unused one is stopped before another starts."""

LOOK_AGAIN: Final = 60.0
"""Seconds after which a server must list its tools again before the next call."""

IDLE: Final = 900.0
_RETRY_DELAYS: Final = (0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
_WAITS: Final = 2.0
_RESTRICTED: Final = {
    Mode.PLAN: "the mode became `plan`, so the server that could change files was ended; in plan mode one can only read",
    Mode.REVIEW: "the mode became `review`, so the server that could change the project was ended; call it again, and it can read it",
}

Seen = Callable[[str, Mapping[str, OfferedTool]], None]
"""Receives a server's tools each time they are listed."""


@record
class SupervisorGrounds:
    """Where servers run, and where their logs and locks go."""

    machine: LaunchMachine
    masker: Masker
    logs: Path
    locks: Path


@record
class _Key:
    """Identifies a process; `rights` is a mode with a sandbox of its own, `plan` or `review`, or the default."""

    server: str
    session: SessionId | None
    rights: Mode


@dataclass(slots=True, eq=False)
class _Slot:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    link: ServerClient | None = None
    lock: int = -1
    failures: int = 0
    not_before: float = 0.0
    looked: float = 0.0
    used: float = 0.0
    users: int = 0
    starting: asyncio.Timeout | None = None
    """The timeout that can end a start in progress."""


class ServerSupervisor:
    """Keeps one process per server and session, or one for all sessions if a server is shared."""

    def __init__(self, specs: Mapping[str, ServerSpec], grounds: SupervisorGrounds, seen: Seen) -> None:
        self._specs = specs
        self._grounds = grounds
        self._seen = seen
        self._slots: dict[_Key, _Slot] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._is_closed = False
        self._restricted: dict[SessionId, Mode] = {}
        """Sessions that entered plan or review mode, whose servers may have been started with more rights."""

    @asynccontextmanager
    async def using(self, server: str, place: Place) -> AsyncGenerator[ServerClient]:
        """Lend the server of a session, starting it if necessary; raise `CannotStart`."""
        spec = self._specs[server]
        rights = place.mode if place.mode in _RESTRICTED and not spec.shared else Mode.DEFAULT
        key = _Key(server, None if spec.shared else place.session, rights)
        slot = self._slots.setdefault(key, _Slot())
        slot.users += 1
        try:
            async with slot.turn:
                link = slot.link
                if link is None or link.is_lost:
                    link = await self._start(key, slot, None if spec.shared else place)
                elif link.has_changed.is_set() or time.monotonic() - slot.looked > LOOK_AGAIN:
                    await self._list_tools(server, slot, link)
            yield link
            slot.failures = 0
        finally:
            slot.users -= 1
            slot.used = time.monotonic()

    async def leave(self, session: SessionId) -> None:
        """Stop the servers of a session that is over."""
        await self._stop([key for key in self._slots if key.session == session])
        self._restricted.pop(session, None)

    async def change_mode(self, session: SessionId, mode: Mode) -> None:
        """Stop at once every server of a session that was started with more rights than its new mode has."""
        if mode not in _RESTRICTED:
            self._restricted.pop(session, None)
            return
        self._restricted[session] = mode
        freer = [
            (key, slot) for key, slot in self._slots.items() if key.session == session and stricter(key.rights, mode) is not key.rights
        ]
        for _, slot in freer:
            if slot.starting is not None and not slot.starting.expired():
                slot.starting.reschedule(0.0)
            if slot.link is not None:
                # At once: the task that holds its lock may be waiting for this very server.
                slot.link.kill(_RESTRICTED[mode])
        await self._stop([key for key, _ in freer])

    async def close(self) -> None:
        """Stop all servers and start no more."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self._stop(list(self._slots))

    async def _start(self, key: _Key, slot: _Slot, place: Place | None) -> ServerClient:
        if self._is_closed:
            raise CannotStart("everything is being stopped")
        await self._release(slot)
        spec = self._specs[key.server]
        wait = slot.not_before - time.monotonic()
        if wait > _WAITS:
            raise CannotStart(f"`{key.server}` failed {slot.failures} times in a row; it is tried again in {wait:.0f} seconds")
        await asyncio.sleep(max(0.0, wait))
        await self._make_room()
        # Counted as a failure until a call succeeds, so that one which dies at once is not started over and over.
        slot.failures += 1
        slot.not_before = time.monotonic() + _RETRY_DELAYS[min(slot.failures, len(_RETRY_DELAYS) - 1)]
        link = await self._open_unless_restricted(key, slot, spec, place)
        slot.link, slot.lock = link, _acquire_lock(self._grounds.locks / f"{key.server}.lock")
        try:
            await self._list_tools(key.server, slot, link)
        except CannotStart:
            await self._release(slot)
            raise
        slot.used = time.monotonic()
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="idle servers")
        return link

    async def _open_unless_restricted(self, key: _Key, slot: _Slot, spec: ServerSpec, place: Place | None) -> ServerClient:
        """Start a server, unless its session is in a mode that gives it less, or enters one meanwhile."""

        def fault() -> str | None:
            mode = None if key.session is None else self._restricted.get(key.session)
            return None if mode is None or stricter(key.rights, mode) is key.rights else _RESTRICTED[mode]

        try:
            async with asyncio.timeout(None) as slot.starting:
                if (why := fault()) is not None:
                    raise CannotStart(why)
                return await self.open(spec, place)
        except TimeoutError:
            raise CannotStart(fault() or _RESTRICTED[Mode.PLAN]) from None
        finally:
            slot.starting = None

    async def open(self, spec: ServerSpec, place: Place | None) -> ServerClient:
        """Start a server and greet it; the caller must close the client."""
        grounds = self._grounds
        process = await launch(spec, place, grounds.machine)
        scope = "all sessions" if place is None else f"session {place.session}"
        client = ServerClient(process, StderrLog(grounds.logs / f"server-{spec.name}.log", grounds.masker, f"started for {scope}"))
        try:
            await client.greet()
        except (ServerLost, ServerSilent, ServerRefused) as error:
            await client.close()
            raise CannotStart(self._failure_text(spec.name, error)) from error
        except BaseException:
            await client.close()
            raise
        return client

    async def offers(self, server: str, client: ServerClient) -> dict[str, OfferedTool]:
        """Ask a server for its tools; raise `CannotStart`."""
        try:
            return tools_by_name(await client.list_tools())
        except (ServerLost, ServerSilent, ServerRefused) as error:
            raise CannotStart(self._failure_text(server, error, "was started, but ")) from error

    async def _list_tools(self, server: str, slot: _Slot, link: ServerClient) -> None:
        link.has_changed.clear()
        offered = await self.offers(server, link)
        slot.looked = time.monotonic()
        self._seen(server, offered)

    def _failure_text(self, server: str, error: Exception, but: str = "") -> str:
        """Return what failed and what to do, followed by the server's own message."""
        log = self._grounds.logs / f"server-{server}.log"
        match error:
            case ServerLost():
                problem = f"ended before it had answered; it may lack a path (`servers.{server}.read`), a variable (`env`) or an argument"
            case ServerSilent():
                problem = f"does not answer; its command must speak MCP on stdin and stdout (`servers.{server}.command`)"
            case _:
                problem = f"does not {'say what it offers' if but else 'agree on a protocol'}; a newer version of it may"
        return f"the server `{server}` {but}{problem}; all it said is in `{log}`; here: {self._grounds.masker.mask_text(str(error))}"

    async def _make_room(self) -> None:
        running = [(key, slot) for key, slot in self._slots.items() if slot.link is not None]
        if len(running) < MOST:
            return
        unused = sorted(((slot.used, key) for key, slot in running if slot.users == 0), key=lambda item: item[0])
        if not unused:
            raise CannotStart(f"{MOST} servers run already, and all are in use; try again in a moment")
        await self._stop([unused[0][1]], only_unused=True)

    async def _sweep(self) -> None:
        """List tools again after a change notification, and stop unused servers."""
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            for key, slot in tuple(self._slots.items()):
                if slot.users or slot.turn.locked():
                    continue
                if slot.link is None or slot.link.is_lost or now - slot.used > IDLE:
                    await self._stop([key], only_unused=True)
                elif slot.link.has_changed.is_set():
                    with suppress(CannotStart):
                        async with slot.turn:
                            await self._list_tools(key.server, slot, slot.link)

    async def _stop(self, keys: list[_Key], *, only_unused: bool = False) -> None:
        async def stop(slot: _Slot) -> None:
            async with slot.turn:
                # Another task may have started using or restarting it before we got the lock.
                if not (only_unused and slot.users):
                    await self._release(slot)

        await asyncio.gather(*(stop(self._slots[key]) for key in keys))
        for key in keys:
            slot = self._slots.get(key)
            if slot is not None and slot.link is None and not slot.users and slot.not_before <= time.monotonic():
                del self._slots[key]

    async def _release(self, slot: _Slot) -> None:
        link, slot.link = slot.link, None
        if link is not None:
            await link.close()
        if slot.lock >= 0:
            os.close(slot.lock)
            slot.lock = -1


def is_running(locks: Path, server: str) -> bool:
    """Tell whether some process of ours keeps this server running."""
    try:
        descriptor = os.open(locks / f"{server}.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _acquire_lock(path: Path) -> int:
    """Return a descriptor whose lock shows, as long as we live, that the server runs."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return descriptor
    return -1
