"""Keeps every open session's actor, and takes commands for any session, whichever process decides it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from itertools import chain
from typing import Self

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
from curtainwall.runtime.sessions.actor import Actor, Neighbours
from curtainwall.runtime.sessions.alarm import Alarm
from curtainwall.runtime.sessions.decider import Decider, RulesNow
from curtainwall.runtime.sessions.feed import LogFeed, StreamWaiters, Tail
from curtainwall.runtime.sessions.folds import SessionFolds, StateCache
from curtainwall.runtime.sessions.owner import DECISION_SECONDS, OwnerTimeout, ProcessEnd
from curtainwall.runtime.sessions.stores import Stores
from curtainwall.session import (
    ProjectState,
    SessionState,
    decide_project,
    fold_project,
    lift,
    posts_of,
    rejection_posts,
    unanswerable,
)

_LOG = logging.getLogger(__name__)
_LOOK_AGAIN = 1.0
_MANY_TIMES = 20
_INBOX, _WANTED = inbox_of(StreamId("")), wanted_lease(StreamId(""))


class SessionRegistry:
    """One process's share of the sessions: it decides for those whose lease it holds, and posts commands to the others."""

    def __init__(
        self,
        stores: Stores,
        clock: Clock,
        rules: RulesNow,
        *,
        folds: SessionFolds | None = None,
        linger: float = 2.0,
        patience: float = DECISION_SECONDS,
    ) -> None:
        self.stores = stores
        self.clock = clock
        self.rules = rules
        self.wakes = StreamWaiters()
        self._patience = OwnerTimeout(patience, self._owner_pid)
        self.feed = LogFeed(stores.log, self.wakes, self._tail)
        self._folds = folds or SessionFolds(stores.log)
        self._states = StateCache(stores.log, self._folds)
        self.alarm = Alarm(clock, self._expire)
        self._neighbours = Neighbours(self._actor, lambda stream: self.wakes.wake(frozenset((stream,))), self.alarm)
        self._actors = self._neighbours.actors
        self._tasks: set[asyncio.Task[None]] = set()
        self._linger = linger
        self._exit_stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        changes = await self._exit_stack.enter_async_context(self.stores.log.watch(self._concerns))
        self.spawn(self._watch(changes))
        self.spawn(self._sweep())
        self.spawn(self.alarm.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._exit_stack.aclose()
        actors = tuple(self._actors.values())
        self._actors.clear()
        for actor in actors:
            await self._let_go(actor)

    def mint(self) -> str:
        """Return a new time-ordered id."""
        return ordered_id(self.clock.now(), self.clock.entropy(5))

    async def send(self, session: SessionId, command: AnyCommand, key: str | None = None) -> int:
        """Have the session's owner decide a command. Return where the log ends after it, or raise its refusal.

        The same key twice is the same command: the second caller gets the first one's outcome. If another process owns the session and does
        not decide within `patience` seconds, raise `Undecided`; the command still counts once that process continues.
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
        """Return the session's actor and keep it in memory while it is held; raise `TryLater` while another process owns it."""
        stream = session_stream(session)
        actor = self._actor(stream)
        if actor is None:
            owner = self.stores.leases.owner(stream)
            raise TryLater(f"session `{session}` is in use by process {owner.pid if owner else 'unknown'}; stop it or use that one")
        return _Hold(actor)

    def want(self, session: SessionId) -> None:
        """Ask the process that owns a session to release it as soon as it has nothing to do there."""
        stream = session_stream(session)
        if stream not in self._actors:
            self.stores.leases.tell(wanted_lease(stream))

    async def until_free(self, stream: StreamId, patience: float) -> None:
        """Return when a stream's owner releases it or ends, or after `patience` seconds."""
        with self.wakes.waiter(freed_lease(stream)) as freed, ProcessEnd(self._owner_pid(stream), freed), suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await freed.wait()

    def peek(self, session: SessionId) -> SessionState | None:
        """Return a session's state if it is in memory here and up to date with the log, otherwise None. Read only."""
        stream = session_stream(session)
        actor = self._actors.get(stream)
        return actor.state if actor is not None and actor.seq == self.stores.log.head(stream) else None

    def look_at(self, session: SessionId) -> SessionState:
        """Return a session's current state from the log, whichever process owns it; the empty state if there is no log."""
        state = self.peek(session)
        return self._states.state(session_stream(session)) if state is None else state

    async def revoke(self, grant: GrantId, by: Who) -> None:
        """Revoke a grant, in whichever session or project it was given."""
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
        """Route a place to a session, replacing `instead_of` or no session, and return the session it leads to now.

        If two callers compete, in any process, the second gets the first one's session. The session may be opened afterwards.
        """
        while True:
            end = self.stores.log.head(HOUSE)
            current = self.stores.index.session_at(route)
            if current != instead_of and current is not None:
                return current
            event = RouteSet(at=self.clock.now(), route=route, session=session, by=by)
            try:
                await self.stores.log.append(Batch((Write(HOUSE, end, (event,)),)))
            except Conflict:
                continue
            return session

    async def note(self, extension: str, data: Mapping[str, JsonValue]) -> None:
        """Record in the house log what an extension has to remember."""
        while True:
            event = ExtensionNoted(at=self.clock.now(), extension=extension, data=data)
            try:
                await self.stores.log.append(Batch((Write(HOUSE, self.stores.log.head(HOUSE), (event,)),)))
            except Conflict:
                continue
            return

    async def delete(self, session: SessionId, by: Who, *, at_rest: bool = False) -> None:
        """Delete a session's log for good. The house log records that it existed and where it ended.

        Refused while asks are open, and with `at_rest` while anything else is.
        """
        stream = session_stream(session)
        async with self.hold(session) as actor:
            if actor.state.opened is None:
                raise NotFound(f"there is no session `{session}`")
            for _ in range(_MANY_TIMES):
                try:
                    await self.stores.log.erase(stream, await self._deletion(session, actor, by, at_rest=at_rest))
                    break
                except Conflict:
                    continue
            else:
                raise TryLater(f"others keep writing to `{stream}` or to the house; try again")
            self._actors.pop(stream, None)
            self._folds.forget(stream)
        await actor.stop()
        # The actor took in no events, so it notified nobody.
        self.wakes.wake(frozenset((stream,)))

    async def _deletion(self, session: SessionId, actor: Actor, by: Who, *, at_rest: bool) -> Batch:
        """Return the batch that records a session's deletion. It is valid only as long as nothing more is written to the session."""
        log, end, house_end = self.stores.log, self.stores.log.head(actor.stream), self.stores.log.head(HOUSE)
        await actor.catch_up(end)
        if actor.state.approvals:
            count = len(actor.state.approvals)
            raise CommandRefused(f"session `{session}` has {count} open approval{'s' if count > 1 else ''}; answer what is open first")
        if at_rest and (not actor.state.is_at_rest or actor.state.sent or self.stores.inbox.waiting(actor.stream)):
            raise CommandRefused(f"session `{session}` has open work")
        [last] = log.read(actor.stream, end - 1, 1)
        now, why = self.clock.now(), f"session `{session}` was deleted"
        deleted = SessionDeleted(at=now, session=session, name=actor.state.name, entries=end, head=last.hash.hex(), by=by)
        # The same commit notifies everyone who waits for a decision or an answer from this session.
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
        decider = Decider(stream, self.stores.log, self._folds, self.clock, self.rules)
        actor = Actor(stream, lease, self.stores, decider, self._neighbours)
        try:
            actor.start()
        except BaseException:
            lease.release()
            raise
        self._neighbours.add(actor)
        if self._folds.is_due(actor.folded):
            # Not only when the session is released: if the process were killed each time, it would refold everything each time.
            self.spawn(self._save_fold(actor))
        return actor

    def _tail(self, stream: StreamId) -> Tail | None:
        actor = self._actors.get(stream)
        return None if actor is None else actor.tail

    async def _outcome(self, stream: StreamId, key: str) -> Outcome:
        """Wait for the owner's decision, and take over at once if the owner ends."""
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
        """Return the process that owns a stream; None if there is none or it cannot be determined now."""
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
        """Tell whether changes to a stream matter here. Later waiters need not be considered: they look at the log first.

        For a stream that only this process writes, its actor notifies waiters once it has taken in what was written.
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
        """Return the actors whose inbox or lease changed. Entries of their own stream are not news to them."""
        actors = (self._actors.get(StreamId(name.removeprefix(what))) for name in streams if name.startswith(what))
        return tuple(actor for actor in actors if actor is not None)

    async def _hand_over(self, actor: Actor) -> None:
        """Release a session to another process as soon as it is not needed here."""
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
        """Expire approvals whose deadline has passed; return False if another process owns the session or nobody can decide now."""
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
        """Release a session and notify the processes that wait for it. Its approvals still expire."""
        # Before the lease is released: the next owner knows better.
        self.alarm.set(actor.stream, actor.deadlines)
        await actor.stop()
        if actor.is_wanted:
            self.stores.leases.tell(freed_lease(actor.stream))
        await self._save_fold(actor)

    async def _save_fold(self, actor: Actor) -> None:
        """Save a snapshot of an actor's fold if it is worth one, in a thread."""
        folded = actor.folded
        if not self._folds.is_due(folded):
            return
        try:
            is_saved = await asyncio.to_thread(self._folds.save, actor.stream, folded)
        except Exception:  # noqa: BLE001 - also where no thread can be started: a cache keeps nobody from going on
            _LOG.warning("no snapshot of `%s` could be made", actor.stream, exc_info=True)
            return
        if is_saved:
            actor.saved_at(folded.seq)

    def spawn(self, work: Coroutine[None, None, None], name: str | None = None) -> "asyncio.Task[None]":
        """Run a background task until the registry closes."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Hold(AbstractAsyncContextManager[Actor]):
    """Keeps an actor in memory. A class rather than a generator, because every call and every turn holds its session."""

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
