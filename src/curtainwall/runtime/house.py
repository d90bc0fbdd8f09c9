"""The house: every open session's actor, and the way in for commands, whichever process decides."""

import asyncio
import os
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol, Self

from pydantic import JsonValue

from curtainwall.model import (
    HOUSE,
    REFUSALS,
    AnyCommand,
    AnyEvent,
    Batch,
    Blobs,
    Clock,
    CommandRefused,
    Conflict,
    ExtensionNoted,
    GrantId,
    Inbox,
    Index,
    Leases,
    Log,
    Marks,
    Moment,
    NotFound,
    Outcome,
    Post,
    RevokeGrant,
    Route,
    RouteSet,
    SessionDeleted,
    SessionId,
    StreamId,
    TryLater,
    Who,
    Write,
    ordered_id,
    session_stream,
)
from curtainwall.runtime.actor import Actor, Neighbours, RulesNow
from curtainwall.runtime.feed import LogFeed, Tail
from curtainwall.runtime.wakes import Wakes
from curtainwall.session import ProjectState, SessionState, decide_project, fold_project, lift

_LOOK_AGAIN = 1.0


class Stores(Protocol):
    """Everything that is kept."""

    @property
    def log(self) -> Log:
        """Return the log."""
        ...

    @property
    def inbox(self) -> Inbox:
        """Return the inbox."""
        ...

    @property
    def leases(self) -> Leases:
        """Return the leases."""
        ...

    @property
    def blobs(self) -> Blobs:
        """Return the blobs."""
        ...

    @property
    def index(self) -> Index:
        """Return the index."""
        ...

    @property
    def marks(self) -> Marks:
        """Return the marks."""
        ...


class House:
    """One process's part of the house: it decides for the sessions whose lease it holds, and posts to the others."""

    def __init__(self, stores: Stores, clock: Clock, rules: RulesNow, *, linger: float = 2.0) -> None:
        self.stores = stores
        self.clock = clock
        self.rules = rules
        self.wakes = Wakes()
        self.feed = LogFeed(stores.log, self.wakes, self._tail)
        self._neighbours = Neighbours()
        self._actors = self._neighbours.actors
        self._tasks: set[asyncio.Task[None]] = set()
        self._linger = linger
        self._opened = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._spawn(self._watch())
        self._spawn(self._sweep())
        await self._opened.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        actors = tuple(self._actors.values())
        self._actors.clear()
        for actor in actors:
            await actor.stop()

    def mint(self) -> str:
        """Return a new time-ordered id."""
        return ordered_id(self.clock.now(), self.clock.entropy(5))

    async def send(self, session: SessionId, command: AnyCommand, key: str | None = None) -> int:
        """Have a command decided by whoever owns the session, and return where the log ends then; raise its refusal.

        The same key twice is the same command: the second caller gets the first one's outcome.
        """
        stream, key = session_stream(session), key or self.mint()
        inbox = self.stores.inbox
        if (outcome := inbox.outcome(stream, key)) is not None:
            return _seq(outcome)
        actor = self._actor(stream)
        if actor is None:
            await inbox.post(Post(stream, key, command))
            return _seq(await self._outcome(stream, key))
        try:
            await actor.submit(command, key)
        except Conflict:
            if (outcome := inbox.outcome(stream, key)) is None:
                raise
        else:
            outcome = inbox.outcome(stream, key)
        assert outcome is not None
        return _seq(outcome)

    def hold(self, session: SessionId) -> AbstractAsyncContextManager[Actor]:
        """Lend the session's actor and keep it in memory meanwhile; raise `TryLater` while another process owns it."""
        stream = session_stream(session)
        actor = self._actor(stream)
        if actor is None:
            owner = self.stores.leases.owner(stream)
            raise TryLater(f"session `{session}` is in use by process {owner.pid if owner else 'unknown'}; stop it or use that one")
        return _Hold(actor)

    def peek(self, session: SessionId) -> SessionState | None:
        """Return the state of a session that is in memory here, to look at; None where the log has to be asked, or knows more by now."""
        stream = session_stream(session)
        actor = self._actors.get(stream)
        return actor.state if actor is not None and actor.seq == self.stores.log.head(stream) else None

    async def revoke(self, grant: GrantId, by: Who) -> None:
        """Take a standing answer back, in whichever session or project it stands."""
        for row in self.stores.index.grants():
            if grant not in (row.grant.id, row.grant.plan):
                continue
            command = RevokeGrant(by=by, grant=grant)
            if row.stream.startswith("session:"):
                await self.send(SessionId(row.stream.removeprefix("session:")), command)
            else:
                await self._revoke_in_project(StreamId(row.stream), command)
            return
        raise NotFound(f"there is no grant `{grant}`")

    async def bind(self, route: Route, session: SessionId, by: Who, *, instead_of: SessionId | None = None) -> SessionId:
        """Let a place lead to a session instead of another, or of none, and return the one that it leads to now.

        Whoever comes second, in whichever process, gets the first one's session. The session may be opened after this.
        """
        while True:
            end = self.stores.log.head(HOUSE)
            found = self.stores.index.session_at(route)
            if found != instead_of and found is not None:
                return found
            event = RouteSet(at=self.clock.now(), route=route, session=session, by=by)
            try:
                await self.stores.log.append(Batch((Write(HOUSE, end, (event,)),)))
            except Conflict:
                continue
            return session

    async def unbind(self, route: Route, by: Who) -> None:
        """Let a place lead nowhere."""
        while True:
            end = self.stores.log.head(HOUSE)
            if self.stores.index.session_at(route) is None:
                return
            event = RouteSet(at=self.clock.now(), route=route, session=None, by=by)
            with suppress(Conflict):
                await self.stores.log.append(Batch((Write(HOUSE, end, (event,)),)))

    async def note(self, extension: str, data: Mapping[str, JsonValue]) -> None:
        """Write down in the house's log what an extension has to remember."""
        while True:
            event = ExtensionNoted(at=self.clock.now(), extension=extension, data=data)
            try:
                await self.stores.log.append(Batch((Write(HOUSE, self.stores.log.head(HOUSE), (event,)),)))
            except Conflict:
                continue
            return

    async def delete(self, session: SessionId, by: Who) -> None:
        """Delete a session's log for good; the house keeps that it was there and where it ended. Open asks forbid it."""
        stream = session_stream(session)
        async with self.hold(session) as actor:
            if actor.state.opened is None:
                raise NotFound(f"there is no session `{session}`")
            if actor.state.approvals:
                many = len(actor.state.approvals)
                raise CommandRefused(f"session `{session}` has {many} open approval{'s' if many > 1 else ''}; answer what is open first")
            entries = self.stores.log.read(stream)
            deleted = SessionDeleted(
                at=self.clock.now(), session=session, name=actor.state.name, entries=len(entries), head=entries[-1].hash.hex(), by=by
            )
            for _ in range(20):
                try:
                    write = Write(HOUSE, self.stores.log.head(HOUSE), (deleted,))
                    await self.stores.log.erase(stream, Batch((write,)))
                    break
                except Conflict:
                    continue
            self._actors.pop(stream, None)
        await actor.stop()

    def _actor(self, stream: StreamId) -> Actor | None:
        actor = self._actors.get(stream)
        if actor is not None:
            return actor
        lease = self.stores.leases.take(stream)
        if lease is None:
            return None
        actor = Actor(stream, lease, self.stores.log, self.stores.inbox, self.clock, self.rules)
        try:
            actor.start(self._neighbours)
        except BaseException:
            lease.release()
            raise
        self._neighbours.add(actor)
        return actor

    def _tail(self, stream: StreamId) -> Tail | None:
        actor = self._actors.get(stream)
        return None if actor is None else actor.tail

    async def _outcome(self, stream: StreamId, key: str) -> Outcome:
        """Wait for the owner's decision; take over at once where the owner ends."""
        with self.wakes.waiter(stream) as woken, _EndOf(self._owner_pid(stream), woken):
            while True:
                woken.clear()
                if (outcome := self.stores.inbox.outcome(stream, key)) is not None:
                    return outcome
                actor = self._actor(stream)
                if actor is not None:
                    actor.look_at_inbox()
                try:
                    await asyncio.wait_for(woken.wait(), _LOOK_AGAIN)
                except TimeoutError:
                    continue

    def _owner_pid(self, stream: StreamId) -> int | None:
        owner = self.stores.leases.owner(stream)
        return None if owner is None else owner.pid

    async def _revoke_in_project(self, stream: StreamId, command: RevokeGrant) -> None:
        for _ in range(20):
            state: ProjectState = fold_project(lift(entry) for entry in self.stores.log.read(stream))
            moment = Moment(at=self.clock.now(), seed=self.clock.entropy(16))
            events: tuple[AnyEvent, ...] = decide_project(state, command, self.rules(), moment)
            try:
                await self.stores.log.append(Batch((Write(stream, state.seq, events),)))
                return
            except Conflict:
                continue
        raise TryLater(f"others keep writing to `{stream}`")

    async def _watch(self) -> None:
        async with self.stores.log.watch() as changes:
            self._opened.set()
            async for streams in changes:
                self.wakes.wake(streams)
                for actor in self._posted_to(streams):
                    actor.look_at_inbox()

    def _posted_to(self, streams: frozenset[StreamId]) -> tuple[Actor, ...]:
        """Return the actors whose inbox changed, as far as we know; entries of their own stream are no news to them."""
        if not streams:
            return tuple(self._actors.values())
        posted = (self._actors.get(StreamId(name.removeprefix("inbox:"))) for name in streams if name.startswith("inbox:"))
        return tuple(actor for actor in posted if actor is not None)

    async def _sweep(self) -> None:
        while True:
            before = {stream: (actor, actor.uses) for stream, actor in self._actors.items() if actor.is_idle}
            await asyncio.sleep(self._linger)
            for stream, (actor, uses) in before.items():
                if self._actors.get(stream) is actor and actor.is_idle and actor.uses == uses:
                    del self._actors[stream]
                    await actor.stop()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.add(asyncio.create_task(work))


class _Hold(AbstractAsyncContextManager[Actor]):
    """Keeps an actor in memory: a class, because every call and every turn holds its session."""

    __slots__ = ("_actor",)

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    async def __aenter__(self) -> Actor:
        self._actor.holders += 1
        self._actor.uses += 1
        return self._actor

    async def __aexit__(self, *_: object) -> None:
        self._actor.holders -= 1


class _EndOf:
    """Sets an event when a process ends."""

    def __init__(self, pid: int | None, ended: asyncio.Event) -> None:
        self._pid = pid
        self._ended = ended
        self._fd = -1

    def __enter__(self) -> None:
        if self._pid is None or self._pid == os.getpid():
            return
        try:
            self._fd = os.pidfd_open(self._pid)
        except OSError:
            self._ended.set()
            return
        asyncio.get_running_loop().add_reader(self._fd, self._fire)

    def __exit__(self, *_: object) -> None:
        self._close()

    def _fire(self) -> None:
        self._close()
        self._ended.set()

    def _close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def _seq(outcome: Outcome) -> int:
    if outcome.seq is not None:
        return outcome.seq
    raise REFUSALS.get(outcome.code, CommandRefused)(outcome.message)
