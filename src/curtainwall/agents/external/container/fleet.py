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
from curtainwall.agents.external.container.spec import LIFELINE_SOCKET, ContainerLimits, ContainerRequest, container_config
from curtainwall.host import BACKLOG, SocketFile
from curtainwall.model import CurtainwallError, SessionId

_MODE = 0o600


class Lifeline:
    """One container's socket; it is there before the container, and goes after it."""

    def __init__(self, file: SocketFile) -> None:
        self._file = file
        self._server: asyncio.Server | None = None
        self._holder: asyncio.StreamWriter | None = None

    @classmethod
    async def open(cls, path: Path, owner: int) -> Self:
        """Listen at a path, for one user.

        Another process may still listen there for the session's container before this one, which is gone by now.
        """
        line = cls(SocketFile.open(path, _MODE, owner, replaces=True))
        line._server = await asyncio.start_unix_server(line._take, sock=line._file.listener, backlog=BACKLOG)
        return line

    def close(self) -> None:
        """Let go of whoever holds it; calling it twice is harmless."""
        if self._server is not None:
            self._server.close()
        if self._holder is not None:
            self._holder.close()
        self._server = self._holder = None
        self._file.remove()

    async def _take(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # One is enough. An agent that opens more must not use up our descriptors, and what it writes is never read.
        if self._holder is None and self._server is not None:
            self._holder = writer
        else:
            writer.close()


Notify = Callable[[str], None]

_LOOK_AGAIN = 1.0


@dataclass(eq=False)
class HeldContainer:
    """One container of ours."""

    id: str
    wish: ContainerRequest
    lifeline: Lifeline
    note: str = ""
    """What people should hear of how it came to be made; empty where nothing is odd about it."""
    is_busy: bool = False
    rested_at: float = 0.0
    resting: asyncio.Task[None] | None = field(default=None, repr=False)


class Fleet:
    """Lends each session its container. What a crash of ours left behind is found by its labels and removed.

    The limit holds for all processes of a `house`, which is the home that they share.
    """

    def __init__(self, engine: Engine, limits: ContainerLimits | None = None, owner: ContainerOwner | None = None, house: str = "") -> None:
        self.engine = engine
        self.limits = limits or ContainerLimits()
        self._owner = owner or ContainerOwner.of_this_process()
        self._house = house
        self._held: dict[SessionId, HeldContainer] = {}
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def borrow(self, wish: ContainerRequest, tell: Notify) -> AsyncGenerator[HeldContainer]:
        """Lend a session its container, running; `tell` hears where it has to be waited for."""
        limits, folders = self.limits, wish.folders
        places = folders.workspace, folders.state
        # Of a container that runs, only the disks can have changed for the worse.
        require_free_space(limits.free_disk, *places)
        held = await self._taken_up(wish, tell)
        if not isinstance(held, HeldContainer):
            await self.engine.check(wish.image, limits.free_disk, *places)
            held = await self._made(wish, tell, note=held)
        held.is_busy = True
        try:
            yield held
        finally:
            held.is_busy = False
            self._let_rest(held)
            await self._tell_waiters()

    async def drop(self, session: SessionId) -> None:
        """Remove a session's container, with everything that runs in it."""
        held = self._held.pop(session, None)
        if held is None:
            return
        try:
            await self._remove(held)
        except BaseException:
            # It is still ours, and is tried again: when it has rested, and when we end.
            if self._held.setdefault(session, held) is held and not held.is_busy:
                self._let_rest(held)
            raise

    def has(self, session: SessionId) -> bool:
        """Tell whether a session has a container here, at work or at rest."""
        return session in self._held

    async def ended(self, session: SessionId) -> str:
        """Return how a container that rests here came to its end by somebody else; empty where none did. Raise `EngineMissing`."""
        held = self._held.get(session)
        return "" if held is None or held.is_busy else self._how_it_ended(await self.engine.state(held.id))

    async def let_go(self, session: SessionId) -> None:
        """Remove a session's container, unless it is at work."""
        held = self._held.get(session)
        if held is not None and not held.is_busy:
            await self.drop(session)

    async def clean(self) -> int:
        """Remove the containers whose owners are dead, and tell how many there were."""
        dead = [each for each in await self.engine.found() if each.owner is not None and not each.owner.is_alive]
        for each in dead:
            await self.engine.remove(each.id)
        return len(dead)

    async def close(self) -> None:
        """Remove every container of this process."""
        for session in tuple(self._held):
            with suppress(CurtainwallError):
                await self.drop(session)

    async def _taken_up(self, wish: ContainerRequest, tell: Notify) -> HeldContainer | str:
        """Return the container that the session has already, or what there is to say of one that it has no more."""
        held = self._held.get(wish.session)
        if held is None:
            return ""
        await _stop(held)
        try:
            state = await self.engine.state(held.id)
            if (ended := self._how_it_ended(state)) or held.wish != wish:
                await self.drop(wish.session)
                return f"{ended}; what still ran in it is gone, and the agent goes on in a new one" if ended else ""
            if state.get("Paused"):
                await self._wait_for_room(None, tell)
                await self.engine.resume(held.id)
        except BaseException:
            # Whoever wanted it has gone, or cannot have it: it goes by itself, as before.
            self._let_rest(held)
            raise
        return held

    async def _made(self, wish: ContainerRequest, tell: Notify, note: str = "") -> HeldContainer:
        """Return a new container. It is made first and started when there is room, so that it keeps its place in the queue."""
        await self._replace_leftovers(wish.session)
        lifeline = await Lifeline.open(wish.folders.run / LIFELINE_SOCKET, wish.user)
        try:
            container = await self.engine.create(container_config(wish, self.limits, self._owner, self._house))
            try:
                await self._wait_for_room(container, tell)
                await self.engine.start(container)
            except BaseException:
                await asyncio.shield(self.engine.remove(container))
                raise
        except BaseException:
            lifeline.close()
            raise
        held = self._held[wish.session] = HeldContainer(container, wish, lifeline, note)
        return held

    async def _replace_leftovers(self, session: SessionId) -> None:
        """Remove what an owner that crashed, or that has handed the session over, left of it.

        It is not taken over: labels cannot be changed, and what still runs inside works for a turn that nobody hears any more. Nothing is
        lost, because what the agent keeps is in its mounts. INVARIANT: whoever lets an agent work holds the session's lease until the agent
        has stopped. We hold it now, so a container of another process is at rest there, however long that process lives.
        """
        await self.clean()
        for each in await self.engine.found(session):
            await self.engine.remove(each.id)

    async def _wait_for_room(self, ticket: str | None, tell: Notify) -> None:
        """Return when fewer containers run, or are to run before this one, than may."""
        is_told = False
        while True:
            every = [each for each in await self.engine.found() if each.house == self._house]
            ids = [each.id for each in every]
            before = every[: ids.index(ticket)] if ticket in ids else every
            ahead = sum(each.state == "running" for each in every) + sum(each.state == "created" for each in before)
            if ahead < self.limits.containers:
                return
            if await self._make_room() or await self.clean():
                continue
            if not is_told:
                tell(f"{self.limits.containers} containers run already, which is the most; waiting until one of them ends or rests")
                is_told = True
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN), self._changed:
                    await self._changed.wait()

    async def _make_room(self) -> bool:
        """Remove the container of ours that has had nothing to do for longest; False where all are busy."""
        resting = [held for held in self._held.values() if held.resting is not None and not held.is_busy]
        if not resting:
            return False
        await self.drop(min(resting, key=lambda held: held.rested_at).wish.session)
        return True

    def _let_rest(self, held: HeldContainer) -> None:
        """Begin to count for how long a container of ours has had nothing to do."""
        if self._held.get(held.wish.session) is held:
            held.rested_at = time.monotonic()
            held.resting = asyncio.create_task(self._rest(held), name=f"container of {held.wish.session} rests")

    async def _rest(self, held: HeldContainer) -> None:
        """Pause a container that has nothing to do, and remove it later."""
        pause_after = min(self.limits.pause_after, self.limits.remove_after)
        await asyncio.sleep(pause_after)
        with suppress(CurtainwallError):
            await self.engine.pause(held.id)
            await self._tell_waiters()
        await asyncio.sleep(self.limits.remove_after - pause_after)
        if self._held.get(held.wish.session) is held and not held.is_busy:
            # Where the engine does not answer, it stays ours and rests on: nobody else may remove it while we live.
            with suppress(CurtainwallError):
                await self.drop(held.wish.session)

    async def _remove(self, held: HeldContainer) -> None:
        await _stop(held)
        await self.engine.remove(held.id)
        held.lifeline.close()
        await self._tell_waiters()

    def _how_it_ended(self, state: Mapping[str, JsonValue]) -> str:
        """Return in words how a container ended while it rested, which nobody here saw; empty while it runs."""
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
    """Let a resting container's clock stop."""
    resting, held.resting = held.resting, None
    if resting is not None and resting is not asyncio.current_task():
        resting.cancel()
        await asyncio.gather(resting, return_exceptions=True)
