"""Every open session's actor, and the way in for commands, whichever process decides."""

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from itertools import chain
from typing import Final, NamedTuple, Self

from pydantic import JsonValue

from curtainwall.model import (
    HOUSE,
    REFUSALS,
    AnyCommand,
    AnyEvent,
    ApprovalId,
    ApprovalQuery,
    Batch,
    Clock,
    CommandRefused,
    Conflict,
    Consumed,
    CurtainwallError,
    ExtensionNoted,
    GrantId,
    Log,
    Moment,
    NotFound,
    Outcome,
    PeerStatus,
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
    freed_lease,
    inbox_of,
    ordered_id,
    session_of,
    session_stream,
    wanted_lease,
)
from curtainwall.runtime.sessions.actor import Actor, Neighbours, Stores
from curtainwall.runtime.sessions.alarm import Alarm
from curtainwall.runtime.sessions.decider import RulesNow
from curtainwall.runtime.sessions.feed import LogFeed, StreamWaiters, Tail
from curtainwall.runtime.sessions.owner import DECISION_SECONDS, OwnerTimeout, ProcessEnd
from curtainwall.session import (
    ProjectState,
    SessionState,
    decide_project,
    fold,
    fold_project,
    lift,
    posts_of,
    rejection_posts,
    unanswerable,
)

_PAGE: Final = 1_000
_MOST: Final = 256


class _Folded(NamedTuple):
    seq: int
    state: SessionState


class StateCache:
    """What the log says of the sessions that were looked at lately. It may be asked from any thread."""

    def __init__(self, log: Log, most: int = _MOST) -> None:
        self._log = log
        self._most = most
        self._mine = threading.Lock()
        self._locks: dict[StreamId, threading.Lock] = {}
        self._kept: OrderedDict[StreamId, _Folded] = OrderedDict()

    def state(self, stream: StreamId) -> SessionState:
        """Return the state up to the end of the log; whoever comes while somebody else folds it waits for that."""
        with self._mine:
            lock = self._locks.setdefault(stream, threading.Lock())
        with lock:
            return self._folded(stream)

    def _folded(self, stream: StreamId) -> SessionState:
        """Fold on, page by page, so that a long log does not have to fit into memory."""
        seq, state = self._kept.pop(stream, None) or _Folded(0, SessionState())
        if seq > self._log.head(stream):
            # Another log than the one that was read: it was deleted, or rescued in part.
            seq, state = 0, SessionState()
        while page := self._log.read(stream, seq, _PAGE):
            state, seq = fold(map(lift, page), state), page[-1].seq
        with self._mine:
            if seq:
                self._kept[stream] = _Folded(seq, state)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            if len(self._locks) > 2 * self._most:
                self._locks = {name: lock for name, lock in self._locks.items() if name in self._kept or lock.locked()}
        return state


_LOG = logging.getLogger(__name__)
_LOOK_AGAIN = 1.0
_MANY_TIMES = 20
_INBOX, _WANTED = inbox_of(StreamId("")), wanted_lease(StreamId(""))


class SessionRegistry:
    """One process's part of the house: it decides for the sessions whose lease it holds, and posts to the others."""

    def __init__(self, stores: Stores, clock: Clock, rules: RulesNow, *, linger: float = 2.0, patience: float = DECISION_SECONDS) -> None:
        self.stores = stores
        self.clock = clock
        self.rules = rules
        self.wakes = StreamWaiters()
        self._patience = OwnerTimeout(patience, self._owner_pid)
        self.feed = LogFeed(stores.log, self.wakes, self._tail)
        self._folds = StateCache(stores.log)
        self.alarm = Alarm(clock, self._expire)
        self._neighbours = Neighbours(self._actor, lambda stream: self.wakes.wake(frozenset((stream,))), self.alarm)
        self._actors = self._neighbours.actors
        self._tasks: set[asyncio.Task[None]] = set()
        self._linger = linger
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        changes = await self._opened.enter_async_context(self.stores.log.watch(self._concerns))
        self.spawn(self._watch(changes))
        self.spawn(self._sweep())
        self.spawn(self.alarm.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._opened.aclose()
        actors = tuple(self._actors.values())
        self._actors.clear()
        for actor in actors:
            await self._let_go(actor)

    def mint(self) -> str:
        """Return a new time-ordered id."""
        return ordered_id(self.clock.now(), self.clock.entropy(5))

    async def send(self, session: SessionId, command: AnyCommand, key: str | None = None) -> int:
        """Have a command decided by whoever owns the session, and return where the log ends then; raise its refusal.

        The same key twice is the same command: the second caller gets the first one's outcome. Another process has so many seconds for
        its decision as this one has patience; past them `Undecided` is raised, and the command still counts as soon as that one goes on.
        """
        stream, inbox = session_stream(session), self.stores.inbox
        if key is None:
            key = self.mint()
        elif (outcome := inbox.outcome(stream, key)) is not None:
            return _seq(outcome)
        actor = self._actor(stream)
        if actor is None:
            await inbox.post(Post(stream, key, command))
            return _seq(await self._patience.wait(stream, self._outcome(stream, key)))
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

    def want(self, session: SessionId) -> None:
        """Ask whichever other process decides for a session to let go of it as soon as it has nothing to do there."""
        stream = session_stream(session)
        if stream not in self._actors:
            self.stores.leases.tell(wanted_lease(stream))

    async def until_free(self, stream: StreamId, patience: float) -> None:
        """Return when whoever decides for a stream lets go of it for others, or ends; after so many seconds at the latest."""
        with self.wakes.waiter(freed_lease(stream)) as freed, ProcessEnd(self._owner_pid(stream), freed), suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await freed.wait()

    def peek(self, session: SessionId) -> SessionState | None:
        """Return the state of a session that is in memory here, to look at; None where the log has to be asked, or knows more by now."""
        stream = session_stream(session)
        actor = self._actors.get(stream)
        return actor.state if actor is not None and actor.seq == self.stores.log.head(stream) else None

    def look_at(self, session: SessionId) -> SessionState:
        """Return a session's state as the log tells it now, whoever decides for it; of a log that is not there the empty one."""
        state = self.peek(session)
        return self._folds.state(session_stream(session)) if state is None else state

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
            for _ in range(_MANY_TIMES):
                try:
                    await self.stores.log.erase(stream, await self._deletion(session, actor, by))
                    break
                except Conflict:
                    continue
            else:
                raise TryLater(f"others keep writing to `{stream}` or to the house; try again")
            self._actors.pop(stream, None)
        await actor.stop()
        # Its actor has taken nothing in that it could tell of.
        self.wakes.wake(frozenset((stream,)))

    async def _deletion(self, session: SessionId, actor: Actor, by: Who) -> Batch:
        """Return what the house keeps of a session that ends here; it stands only as long as nothing more is written there."""
        log, end, house_end = self.stores.log, self.stores.log.head(actor.stream), self.stores.log.head(HOUSE)
        await actor.catch_up(end)
        if actor.state.approvals:
            many = len(actor.state.approvals)
            raise CommandRefused(f"session `{session}` has {many} open approval{'s' if many > 1 else ''}; answer what is open first")
        [last] = log.read(actor.stream, end - 1, 1)
        now, why = self.clock.now(), f"session `{session}` was deleted"
        deleted = SessionDeleted(at=now, session=session, name=actor.state.name, entries=end, head=last.hash.hex(), by=by)
        # Whoever waits for a decision, or for an answer from here, is told in the same commit.
        waiting = self.stores.inbox.waiting(actor.stream)
        consumed = (Consumed(actor.stream, row.key, Outcome(code=NotFound.code, message=why)) for row in waiting)
        unanswered = unanswerable(actor.state, actor.state.peers, PeerStatus.REFUSED, why, now)
        posts = (*posts_of(unanswered), *chain.from_iterable(rejection_posts(row.command, why) for row in waiting))
        return Batch((Write(actor.stream, end, ()), Write(HOUSE, house_end, (deleted,))), tuple(consumed), posts)

    def _actor(self, stream: StreamId) -> Actor | None:
        actor = self._actors.get(stream)
        if actor is not None:
            return actor
        lease = self.stores.leases.take(stream)
        if lease is None:
            return None
        actor = Actor(stream, lease, self.stores, self.clock, self.rules, self._neighbours)
        try:
            actor.start()
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
        with self.wakes.waiter(stream, freed_lease(stream)) as woken, ProcessEnd(self._owner_pid(stream), woken):
            while True:
                woken.clear()
                if (outcome := self.stores.inbox.outcome(stream, key)) is not None:
                    return outcome
                actor = self._actor(stream)
                if actor is not None:
                    actor.look_at_inbox()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN):
                        await woken.wait()

    def _owner_pid(self, stream: StreamId) -> int | None:
        """Return who decides for a stream; None for nobody, and where that cannot be told now."""
        try:
            owner = self.stores.leases.owner(stream)
        except CurtainwallError:
            return None
        return None if owner is None else owner.pid

    async def _revoke_in_project(self, stream: StreamId, command: RevokeGrant) -> None:
        for _ in range(_MANY_TIMES):
            state: ProjectState = fold_project(lift(entry) for entry in self.stores.log.read(stream))
            moment = Moment(at=self.clock.now(), seed=self.clock.entropy(16))
            events: tuple[AnyEvent, ...] = decide_project(state, command, self.rules(), moment)
            try:
                await self.stores.log.append(Batch((Write(stream, state.seq, events),)))
                return
            except Conflict:
                continue
        raise TryLater(f"others keep writing to `{stream}`")

    def _concerns(self, name: StreamId) -> bool:
        """Tell whether somebody here wants to hear of a stream; whoever begins to wait later looks at the log first.

        Of one that only this process writes its actor tells, once it has taken in what was written.
        """
        return name not in self._actors and (name in self.wakes or name.startswith((_INBOX, _WANTED)))

    async def _watch(self, changes: AsyncIterator[frozenset[StreamId]]) -> None:
        async for streams in changes:
            self.wakes.wake(streams)
            for actor in self._actors_of(_INBOX, streams) if streams else tuple(self._actors.values()):
                actor.look_at_inbox()
            for actor in self._actors_of(_WANTED, streams):
                if not actor.is_wanted:
                    actor.is_wanted = True
                    self.spawn(self._hand_over(actor))

    def _actors_of(self, what: str, streams: frozenset[StreamId]) -> tuple[Actor, ...]:
        """Return the actors of whose inbox or lease there is news; entries of their own stream are none to them."""
        found = (self._actors.get(StreamId(name.removeprefix(what))) for name in streams if name.startswith(what))
        return tuple(actor for actor in found if actor is not None)

    async def _hand_over(self, actor: Actor) -> None:
        """Let another process decide as soon as a session is not needed here."""
        await actor.rest()
        if self._actors.get(actor.stream) is actor:
            del self._actors[actor.stream]
            await self._let_go(actor)

    async def _sweep(self) -> None:
        while True:
            before = {stream: (actor, actor.uses) for stream, actor in self._actors.items() if actor.is_idle}
            await asyncio.sleep(self._linger)
            for stream, (actor, uses) in before.items():
                if self._actors.get(stream) is actor and actor.is_idle and actor.uses == uses:
                    del self._actors[stream]
                    await self._let_go(actor)

    def _expire(self, stream: StreamId, approvals: frozenset[ApprovalId]) -> bool:
        """Have approvals expire whose time is over; False where another process decides for their session, or nobody can now."""
        index, session = self.stores.index, session_of(stream)
        try:
            if not any(index.approvals(ApprovalQuery(session=session, approval=approval)) for approval in approvals):
                # Settled or deleted by another process.
                return True
            actor = self._actor(stream)
        except CurtainwallError:
            return False
        except Exception:  # noqa: BLE001 - a fault of ours in one session must not keep the asks of others open
            _LOG.exception("the approvals of session `%s` could not expire", session)
            return True
        if actor is None:
            return False
        actor.expire(approvals)
        return True

    async def _let_go(self, actor: Actor) -> None:
        """Stop deciding for a session, and tell whoever waits for it; what it asked expires all the same."""
        # Before the lease is free: whoever takes it next knows better.
        self.alarm.set(actor.stream, actor.deadlines)
        await actor.stop()
        if actor.is_wanted:
            self.stores.leases.tell(freed_lease(actor.stream))

    def spawn(self, work: Coroutine[None, None, None], name: str | None = None) -> "asyncio.Task[None]":
        """Have something done beside everything else, for as long as the house is open."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


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
        self._actor.lose_holder()


def _seq(outcome: Outcome) -> int:
    if outcome.seq is not None:
        return outcome.seq
    raise REFUSALS.get(outcome.code, CommandRefused)(outcome.message)
