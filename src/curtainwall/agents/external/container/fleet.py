"""The containers of this process, one per session: created on demand, paused and removed when idle, and ended when this process is gone."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pydantic import JsonValue

from curtainwall.agents.external.container.engine import Engine, require_free_space
from curtainwall.agents.external.container.owners import ContainerOwner
from curtainwall.agents.external.container.port_forwards import PortForwards
from curtainwall.agents.external.container.spec import LIFELINE_SOCKET, ContainerLimits, ContainerRequest, container_config
from curtainwall.agents.external.container.turn_watch import DiskUse
from curtainwall.host import BACKLOG, SocketFile
from curtainwall.model import CurtainwallError, SessionId

_MODE = 0o600


class Lifeline:
    """One container's lifeline socket, which is opened before the container and closed after it."""

    def __init__(self, file: SocketFile) -> None:
        self._file = file
        self._server: asyncio.Server | None = None
        self._holder: asyncio.StreamWriter | None = None

    @classmethod
    async def open(cls, path: Path, owner: int) -> Self:
        """Listen at a path, for one user.

        Another process may still listen there for the session's previous container, which is gone by now.
        """
        line = cls(SocketFile.open(path, _MODE, owner, replaces=True))
        line._server = await asyncio.start_unix_server(line._take, sock=line._file.listener, backlog=BACKLOG)
        return line

    def close(self) -> None:
        """Close the socket and its connection; calling it twice is harmless."""
        if self._server is not None:
            self._server.close()
        if self._holder is not None:
            self._holder.close()
        self._server = self._holder = None
        self._file.remove()

    async def _take(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # One connection is enough. An agent that opens more must not use up our descriptors, and its data is never read.
        if self._holder is None and self._server is not None:
            self._holder = writer
        else:
            writer.close()


Notify = Callable[[str], None]

_LOOK_AGAIN = 1.0


@dataclass(eq=False)
class HeldContainer:
    """A container that this process owns."""

    id: str
    request: ContainerRequest
    lifeline: Lifeline
    forwards: PortForwards
    note: str = ""
    """A note for people on why it was created; empty if there was nothing unusual."""
    is_busy: bool = False
    rested_at: float = 0.0
    resting: asyncio.Task[None] | None = field(default=None, repr=False)


class Fleet:
    """Lends each session its container. Containers left behind by a crash are found by their labels and removed.

    The limit holds for all processes of a `house`, which is the home that they share.
    """

    def __init__(self, engine: Engine, limits: ContainerLimits | None = None, owner: ContainerOwner | None = None, home: str = "") -> None:
        self.engine = engine
        self.limits = limits or ContainerLimits()
        self._owner = owner or ContainerOwner.of_this_process()
        self._house = home
        self._held: dict[SessionId, HeldContainer] = {}
        self._removals: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def borrow(self, request: ContainerRequest, tell: Notify) -> AsyncGenerator[HeldContainer]:
        """Lend a session its running container; `tell` is called if the session has to wait."""
        limits, folders = self.limits, request.folders
        places = folders.workspace, folders.state
        # For a running container, only the disks can have become a problem.
        require_free_space(limits.free_disk, *places)
        held = await self._taken_up(request, tell)
        if not isinstance(held, HeldContainer):
            await self.engine.check(request.image, limits.free_disk, *places, remedy=request.remedy)
            held = await self._made(request, tell, note=held)
        held.is_busy = True
        try:
            yield held
        finally:
            held.is_busy = False
            self._let_rest(held)
            await self._tell_waiters()

    async def drop(self, session: SessionId) -> None:
        """Remove a session's container, with everything that runs in it; a removal that began is completed also if the caller leaves."""
        held = self._held.pop(session, None)
        if held is None:
            return
        removal = asyncio.create_task(self._remove(held), name=f"removal of the container of {session}")
        self._removals.add(removal)
        removal.add_done_callback(self._removal_ended)
        await asyncio.shield(removal)

    def _removal_ended(self, removal: asyncio.Task[None]) -> None:
        self._removals.discard(removal)
        # Whoever waits gets its exception; where nobody does any more, it counts as retrieved.
        if not removal.cancelled():
            removal.exception()

    def has(self, session: SessionId) -> bool:
        """Tell whether a session has a container here, busy or idle."""
        return session in self._held

    async def ended(self, session: SessionId) -> str:
        """Return how something else ended a session's idle container, or an empty string if nothing did; raise `EngineMissing`."""
        held = self._held.get(session)
        return "" if held is None or held.is_busy else self._how_it_ended(await self.engine.state(held.id))

    async def wait_until_gone(self, session: SessionId) -> None:
        """Return once a session has no container here."""
        async with self._changed:
            await self._changed.wait_for(lambda: session not in self._held)

    async def freeze(self, session: SessionId) -> None:
        """Freeze a session's idle container, so that nothing in it changes anything until it is lent again.

        Not every engine can freeze; where this one could not, the container is removed.
        """
        held = self._held.get(session)
        if held is not None and not held.is_busy:
            await self.engine.pause(held.id)
            state = await self.engine.state(held.id)
            if state.get("Running") and not state.get("Paused"):
                await self.drop(session)

    async def still(self, session: SessionId) -> None:
        """Make sure that nothing of a session changes anything until a container is lent to it again.

        Programs that are kept running are frozen, and everything else is ended, also what another process left.
        """
        held = self._held.get(session)
        if held is None:
            await self._replace_leftovers(session)
        elif held.request.is_kept:
            await self.freeze(session)
        else:
            await self.drop(session)

    async def let_go(self, session: SessionId) -> None:
        """Remove a session's container unless it is busy."""
        held = self._held.get(session)
        if held is not None and not held.is_busy:
            await self.drop(session)

    async def clean(self) -> int:
        """Remove the containers whose owners are dead, and return their number."""
        dead = [each for each in await self.engine.list_containers() if each.owner is not None and not each.owner.is_alive]
        for each in dead:
            await self.engine.remove(each.id)
        return len(dead)

    async def close(self) -> None:
        """Remove every container of this process."""
        # A session that has just ended may be losing its container already, on behalf of someone who does not wait for it any more.
        await asyncio.gather(*self._removals, return_exceptions=True)
        for session in tuple(self._held):
            with suppress(CurtainwallError):
                await self.drop(session)

    async def _taken_up(self, request: ContainerRequest, tell: Notify) -> HeldContainer | str:
        """Return the session's existing container, or a note about one that is gone."""
        held = self._held.get(request.session)
        if held is None:
            return ""
        await _stop(held)
        try:
            state = await self.engine.state(held.id)
            if (ended := self._how_it_ended(state)) or held.request != request:
                await self.drop(request.session)
                return f"{ended}; what still ran in it is gone, and the agent goes on in a new one" if ended else ""
            if state.get("Paused"):
                await self._wait_for_room(None, tell)
                await self.engine.resume(held.id)
        except BaseException:
            # The caller is gone or cannot have it: it becomes idle again.
            self._let_rest(held)
            raise
        return held

    async def _made(self, request: ContainerRequest, tell: Notify, note: str = "") -> HeldContainer:
        """Create a container, then start it when there is room; creating it first keeps its place in the queue."""
        await self._replace_leftovers(request.session)
        lifeline = await Lifeline.open(request.folders.run / LIFELINE_SOCKET, request.user)
        try:
            config = container_config(request, self.limits, self._owner, self._house)
            container = await self.engine.create(config, f"curtainwall-{request.session}")
            try:
                await self._wait_for_room(container, tell)
                await self.engine.start(container)
            except BaseException:
                await asyncio.shield(self.engine.remove(container))
                raise
        except BaseException:
            lifeline.close()
            raise
        forwards = PortForwards(self.engine, container)
        held = self._held[request.session] = HeldContainer(container, request, lifeline, forwards)
        try:
            held.note = "; ".join((*filter(None, (note,)), *await forwards.open(request.ports)))
        except BaseException:
            await asyncio.shield(self.drop(request.session))
            raise
        return held

    async def _replace_leftovers(self, session: SessionId) -> None:
        """Remove the containers that an owner left behind when it crashed or handed the session over.

        We do not take them over: labels cannot be changed, and what runs inside works for a turn that is over. Nothing is lost, because
        the agent's state is in its mounts. INVARIANT: a process holds the session's lease until its agent has stopped. We hold it now, so
        a container of another process is idle, however long that process lives.
        """
        await self.clean()
        for each in await self.engine.list_containers(session):
            await self.engine.remove(each.id)

    async def _wait_for_room(self, ticket: str | None, tell: Notify) -> None:
        """Return when the containers that run, or are queued before this one, are fewer than the limit."""
        is_notified = False
        while True:
            every = [each for each in await self.engine.list_containers() if each.house == self._house]
            ids = [each.id for each in every]
            before = every[: ids.index(ticket)] if ticket in ids else every
            ahead = sum(each.state == "running" for each in every) + sum(each.state == "created" for each in before)
            if ahead < self.limits.containers:
                return
            if await self._make_room() or await self.clean():
                continue
            if not is_notified:
                tell(f"{self.limits.containers} containers run already, which is the most; waiting until one of them ends or rests")
                is_notified = True
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN), self._changed:
                    await self._changed.wait()

    async def _make_room(self) -> bool:
        """Remove our container that has been idle longest; return False if all are busy."""
        resting = [held for held in self._held.values() if held.resting is not None and not held.is_busy]
        if not resting:
            return False
        await self.drop(min(resting, key=lambda held: held.rested_at).request.session)
        return True

    def _let_rest(self, held: HeldContainer) -> None:
        """Start the idle clock of one of our containers."""
        if self._held.get(held.request.session) is held:
            held.rested_at = time.monotonic()
            held.resting = asyncio.create_task(self._rest(held), name=f"container of {held.request.session} rests")

    async def _rest(self, held: HeldContainer) -> None:
        """Pause an idle container and remove it later, or at once if something in it fills the disk."""
        if held.request.is_kept:
            # What was left running on purpose, such as a server, is not frozen.
            await self._keeps_within_limits(held, self.limits.remove_after)
        elif await self._keeps_within_limits(held, pause_after := min(self.limits.pause_after, self.limits.remove_after)):
            with suppress(CurtainwallError):
                await self.engine.pause(held.id)
                await self._tell_waiters()
            await asyncio.sleep(self.limits.remove_after - pause_after)
        if self._held.get(held.request.session) is held and not held.is_busy:
            # If the engine does not answer, the container stays ours and idle: nobody else may remove it while we live.
            with suppress(CurtainwallError):
                await self.drop(held.request.session)

    async def _keeps_within_limits(self, held: HeldContainer, seconds: float) -> bool:
        """Watch the disk for this long; return False as soon as it is too full. The next turn reports which limit was reached."""
        folders, until = held.request.folders, time.monotonic() + seconds
        disk = DiskUse(folders, self.limits.disk)
        try:
            while (left := until - time.monotonic()) > 0:
                require_free_space(self.limits.free_disk, folders.workspace, folders.state)
                await disk.look()
                await asyncio.sleep(min(_LOOK_AGAIN, left))
        except CurtainwallError:
            return False
        finally:
            await disk.close()
        return True

    async def _remove(self, held: HeldContainer) -> None:
        await _stop(held)
        try:
            await self.engine.remove(held.id)
        except BaseException:
            # It is still ours. Removal is tried again after the idle time, and when we shut down.
            if self._held.setdefault(held.request.session, held) is held and not held.is_busy:
                self._let_rest(held)
            raise
        await held.forwards.close()
        held.lifeline.close()
        await self._tell_waiters()

    def _how_it_ended(self, state: Mapping[str, JsonValue]) -> str:
        """Describe how a container ended unnoticed while it was idle; return an empty string if it runs."""
        if not state:
            return "the container was removed by somebody else while it rested"
        if state.get("Running"):
            return ""
        if state.get("OOMKilled"):
            return f"the container used up its memory ({self.limits.memory_text}) while it rested"
        return f"the container was ended by somebody else while it rested (exit code {state.get('ExitCode')})"

    async def _tell_waiters(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _stop(held: HeldContainer) -> None:
    """Stop the clock of an idle container."""
    resting, held.resting = held.resting, None
    if resting is not None and resting is not asyncio.current_task():
        resting.cancel()
        await asyncio.gather(resting, return_exceptions=True)
