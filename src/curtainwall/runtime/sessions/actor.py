"""One session's single writer: take every command that waits, decide, append once, publish."""

import asyncio
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from curtainwall.model import (
    SYSTEM,
    AnyCommand,
    AnyEvent,
    ApprovalId,
    Batch,
    Blobs,
    Broken,
    Clock,
    Conflict,
    CountDenials,
    CurtainwallError,
    ExpireApprovals,
    Inbox,
    Index,
    Lease,
    Leases,
    Log,
    Marks,
    Post,
    RepairSession,
    Save,
    StreamId,
    Tallies,
    TryLater,
)
from curtainwall.runtime.sessions.alarm import Alarm, Deadline
from curtainwall.runtime.sessions.decider import Decider, DecisionDraft, Follow, RulesNow, Ticket, fail, save_programs, shared
from curtainwall.runtime.sessions.feed import Tail
from curtainwall.session import CallStatus, SessionState


class Stores(Protocol):
    """What sessions are decided from and written to."""

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


class SideStores(Protocol):
    """What is kept beside the sessions, for channels and for whoever asks how the home is."""

    @property
    def tallies(self) -> Tallies:
        """Return the tallies."""
        ...

    @property
    def marks(self) -> Marks:
        """Return the marks."""
        ...


class HomeStores(Stores, SideStores, Protocol):
    """Everything that is kept in a home."""


_A_MOMENT, _A_WHILE = 0.005, 1.0

Listen = Callable[[SessionState], None]
"""Hears each time what is durable by now."""


class Neighbours:
    """The sessions that are in memory in this process, how another one gets there, who hears that one has grown, and their alarm."""

    def __init__(self, take_up: Callable[[StreamId], object], grown: Callable[[StreamId], object], alarm: Alarm) -> None:
        self.take_up = take_up
        self.grown = grown
        self.alarm = alarm
        self.actors: dict[StreamId, Actor] = {}
        self.arrivals = 0
        """How many have come so far. Whoever comes may have posted commands when another process decided for it."""

    def add(self, actor: "Actor") -> None:
        """Let others know of one."""
        self.actors[actor.stream] = actor
        self.arrivals += 1


class Actor:
    """The owner of one session's log while it holds the lease."""

    def __init__(self, stream: StreamId, lease: Lease, stores: Stores, clock: Clock, rules: RulesNow, neighbours: Neighbours) -> None:
        self.stream = stream
        self.holders = 0
        # How often the session was used: whoever wants to drop it sees by this that nobody did meanwhile.
        self.uses = 0
        # Denials that no event tells of so far.
        self.uncounted = 0
        # Whether another process waits for the session.
        self.is_wanted = False
        self._lease = lease
        self._log = stores.log
        self._inbox = stores.inbox
        self._deciding = Decider(stream, stores.log, clock, rules)
        self._neighbours = neighbours
        self._arrivals = 0
        self._tickets: list[Ticket] = []
        # Commands that are on their way; the inbox knows those that arrived.
        self._keyed: dict[str, asyncio.Future[tuple[AnyEvent, ...]]] = {}
        self._work = asyncio.Event()
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._has_grown = asyncio.Event()
        self._may_rest = asyncio.Event()
        self._follows: list[Follow] = []
        self._listeners: list[Listen] = []
        self._inbox_changed = True
        self._is_deciding = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Fold the log, close what a crash left open, and begin to take commands."""
        self._deciding.refold()
        if self.state.opened is not None:
            self._tickets.append(Ticket(RepairSession(by=SYSTEM), is_owed=True))
            self._tickets.append(Ticket(ExpireApprovals(by=SYSTEM), is_owed=True))
        self._work.set()
        self._task = asyncio.create_task(self._run(), name=f"actor {self.stream}")

    async def submit(self, command: AnyCommand, key: str | None = None, save: Save | None = None) -> tuple[AnyEvent, ...]:
        """Decide one command and return its events once they are durable; `save` is called where a program has to be kept with them."""
        if self._task is None or self._task.done():
            raise Conflict("this process no longer decides for the session")
        if key is not None and (twin := self._keyed.get(key)) is not None:
            return await shared(twin)
        done: asyncio.Future[tuple[AnyEvent, ...]] = asyncio.get_running_loop().create_future()
        if key is not None:
            self._keyed[key] = done
            done.add_done_callback(lambda _: self._keyed.pop(key, None))
        self._tickets.append(Ticket(command, key, done, save=save))
        self._work.set()
        return await done

    def owe(self, command: AnyCommand) -> None:
        """Have a command decided with whatever comes next, or in a moment by itself; it is written before anything that comes after it."""
        if self._task is None or self._task.done():
            raise Conflict("this process no longer decides for the session")
        self._tickets.append(Ticket(command, is_owed=True))
        asyncio.get_running_loop().call_later(_A_MOMENT, self._work.set)

    def look_at_inbox(self) -> None:
        """Take up commands that other processes posted."""
        self._inbox_changed = True
        self._work.set()

    async def catch_up(self, seq: int) -> None:
        """Return when the state holds the entry of that number; the log shows an entry a moment before."""
        while self.seq < seq:
            self._has_grown.clear()
            await self._has_grown.wait()

    async def grown(self) -> None:
        """Return when something more is durable."""
        self._has_grown.clear()
        await self._has_grown.wait()

    @property
    def state(self) -> SessionState:
        """What is durable by now."""
        return self._deciding.state

    @property
    def tail(self) -> Tail:
        """The last entries."""
        return self._deciding.tail

    @property
    def seq(self) -> int:
        """The number of the last entry that the state holds."""
        return self._deciding.tail.seq

    @contextmanager
    def followed_by(self, follow: Follow) -> Generator[None]:
        """Let somebody add to each decision for a while. They see events that are not durable yet, and may see them twice."""
        self._follows.append(follow)
        try:
            yield
        finally:
            self._follows.remove(follow)
            self._may_rest.set()

    @contextmanager
    def observed_by(self, listen: Listen) -> Generator[None]:
        """Let somebody hear for a while of whatever is durable, as soon as it is."""
        self._listeners.append(listen)
        try:
            yield
        finally:
            self._listeners.remove(listen)

    @property
    def deadlines(self) -> tuple[Deadline, ...]:
        """When the open approvals expire that have a deadline."""
        asked = (open_.asked for open_ in self.state.approvals.values())
        return tuple(Deadline(it.approval, it.at, it.deadline) for it in asked if it.deadline is not None)

    def expire(self, approvals: Collection[ApprovalId]) -> None:
        """Settle approvals whose time is over, as soon as that can be written down."""
        self._tickets.append(Ticket(ExpireApprovals(by=SYSTEM, overdue=tuple(approvals)), is_owed=True))
        self._work.set()

    @property
    def is_idle(self) -> bool:
        """Tell whether the session can be dropped from memory: nobody holds it, nothing waits, no permitted call is out."""
        running = any(call.standing is CallStatus.PERMITTED for call in self.state.calls.values())
        return not (self.holders or self._tickets or self._work.is_set() or self._is_deciding or running) and self._is_free.is_set()

    @property
    def is_needed(self) -> bool:
        """Tell whether something goes on in the session, or somebody here waits for what comes next in it."""
        return not self.is_idle or bool(self._follows)

    async def rest(self) -> None:
        """Return when the session is not needed here any more, or was let go."""
        while self.is_needed and self._task is not None and not self._task.done():
            self._may_rest.clear()
            await self._may_rest.wait()

    def lose_holder(self) -> None:
        """Count one less of those who hold the session."""
        self.holders -= 1
        self._may_rest.set()

    async def stop(self) -> None:
        """Let go of the session; what waits in the inbox stays for the next owner."""
        await self._is_free.wait()
        if self._task is not None:
            self._task.cancel()
        if not self._is_deciding and not self._tickets and not self.uncounted:
            # Nothing is on its way to the log, and nothing will be: whoever comes next need not wait until the task has ended.
            self._lease.release()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
            # The task keeps the error that ended it, and by its traceback this actor with all that it holds: until a search for garbage.
            self._task = None
        self._may_rest.set()
        await self._settle_debts()
        fail(self._tickets, Conflict("this process let go of the session before deciding"))
        self._tickets = []
        # Whoever waits for news of the session may know this actor for as long as that takes.
        self.tail.forget()
        self._lease.release()

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            if not self._is_free.is_set():
                await self._is_free.wait()
            self._work.clear()
            tickets, self._tickets = self._tickets, []
            self._is_deciding = True
            self.uses += 1
            try:
                if self._inbox_changed:
                    direct = {ticket.key for ticket in tickets}
                    rows = self._inbox.waiting(self.stream)
                    tickets += (Ticket(row.command, row.key) for row in rows if row.key not in direct)
                    self._inbox_changed = False
                if tickets:
                    await self._settle(tickets)
            except CurtainwallError as error:
                # Fail closed: nothing was written, everyone who waits is told, and the state is what the log says.
                fail(tickets, error)
                self._try_again(tickets)
            except Exception as error:  # noqa: BLE001 - a fault of ours must not leave anyone waiting for ever
                fail(tickets, Broken(f"a command could not be decided: {type(error).__name__}: {error}"))
                self._try_again(tickets)
            except asyncio.CancelledError:
                fail(tickets, Conflict("this process let go of the session before deciding"))
                raise
            finally:
                self._is_deciding = False
            self._may_rest.set()

    def _try_again(self, tickets: list[Ticket]) -> None:
        """Look in a while at what nobody else brings again: what is owed, and what waits in the inbox."""
        self._tickets[:0] = [ticket for ticket in tickets if ticket.is_owed]
        self._inbox_changed = True
        asyncio.get_running_loop().call_later(_A_WHILE, self._work.set)

    async def _settle_debts(self) -> None:
        """Write down what is owed before somebody else can decide."""
        owed = [ticket for ticket in self._tickets if ticket.is_owed]
        if self.uncounted:
            owed.append(Ticket(CountDenials(by=SYSTEM, count=self.uncounted), is_owed=True))
        with suppress(CurtainwallError):
            if owed:
                await self._settle(owed)

    async def _settle(self, tickets: list[Ticket]) -> None:
        for attempt in range(20):
            draft = self._deciding.decide(tickets, tuple(self._follows))
            if any(ticket.needs_program for ticket in draft.decided):
                # Most calls are looks that nobody is asked about, and saving a program for those would cost more than the look.
                if failed := await save_programs(draft.decided):
                    tickets[:] = [ticket for ticket in tickets if ticket not in failed]
                    continue
                draft = self._deciding.with_programs(draft)
            own = Decision(self, tickets, draft)
            guests: list[Decision] = []
            try:
                if attempt == 0:
                    self._invite(own.batch.posts, guests)
                batch = _together(own.batch, guests)
                if batch.writes or batch.consumed:
                    await self._log.append(batch)
            except Conflict:
                self._deciding.refold()
                self._tell_grown()
                tickets[:] = [ticket for ticket in tickets if not self._was_decided(ticket)]
                continue
            else:
                # Whoever was written to goes first: it has work to do, and whoever wrote waits for that anyway.
                for decision in (*guests, own):
                    decision.actor.take_in(decision)
                self._wake_neighbours(batch.posts)
                return
            finally:
                for decision in (own, *guests):
                    decision.actor.set_free()
        raise TryLater(f"others keep writing to `{self.stream}`")

    def join(self, post: Post) -> "Decision | None":
        """Decide a command that leaves another session of this process, to be written in the same commit; None where it has to be posted.

        That is done only where the session rests and somebody waits for what comes next. It stays bound until it is `set_free`.
        """
        rests = self._is_free.is_set() and not (self._is_deciding or self._tickets or self._inbox_changed)
        if not rests or not self._follows or self._task is None or self._task.done() or self._has_mail():
            return None
        tickets = [Ticket(post.command, post.key)]
        decision = Decision(self, tickets, self._deciding.decide(tickets, tuple(self._follows)))
        self._is_free.clear()
        self.uses += 1
        return decision

    def take_in(self, decision: "Decision") -> None:
        """Let the state be what is durable by now, and tell everyone who waits."""
        self._deciding.take_in(decision.draft)
        self._neighbours.alarm.set(self.stream, self.deadlines)
        for ticket in decision.tickets:
            ticket.tell()
        self._tell_grown()

    def set_free(self) -> None:
        """Let the session decide for itself again."""
        self._is_free.set()
        self._may_rest.set()

    def _invite(self, posts: Sequence[Post], guests: "list[Decision]") -> None:
        """Let the sessions to which commands leave decide along with us where they can; none of us is stopped meanwhile."""
        for post in posts:
            there = self._neighbours.actors.get(post.stream)
            try:
                decision = None if there is None else there.join(post)
            except Exception:  # noqa: BLE001 - what goes wrong there is told there: it is posted, and they decide it by themselves
                decision = None
            if decision is not None:
                self._is_free.clear()
                guests.append(decision)

    def _has_mail(self) -> bool:
        """Tell whether a newcomer posted something here before it came, which must not be overtaken."""
        if self._arrivals == self._neighbours.arrivals:
            return False
        self._arrivals = self._neighbours.arrivals
        if not self._inbox.waiting(self.stream):
            return False
        self.look_at_inbox()
        return True

    def _wake_neighbours(self, posts: Sequence[Post]) -> None:
        """See to it that no later command of ours overtakes one that was just posted, and that none waits for a session that is gone."""
        for post in posts:
            there = self._neighbours.actors.get(post.stream)
            if there is not None:
                there.look_at_inbox()
                continue
            with suppress(CurtainwallError):
                if self._log.head(post.stream) == 0:
                    # It was deleted a moment ago, and nobody else would ever look there.
                    self._neighbours.take_up(post.stream)

    def _tell_grown(self) -> None:
        self._has_grown.set()
        self._neighbours.grown(self.stream)
        for listen in tuple(self._listeners):
            listen(self.state)

    def _was_decided(self, ticket: Ticket) -> bool:
        outcome = self._inbox.outcome(self.stream, ticket.key) if ticket.key is not None else None
        if outcome is None:
            return False
        ticket.fail(Conflict(f"command `{ticket.key}` was decided by another process"))
        return True


@dataclass(frozen=True, slots=True)
class Decision:
    """What one session makes of some commands, before it is durable."""

    actor: Actor
    tickets: Sequence[Ticket]
    draft: DecisionDraft

    @property
    def batch(self) -> Batch:
        """What has to be written for it."""
        return self.draft.batch


def _together(own: Batch, guests: Sequence[Decision]) -> Batch:
    """Return one batch for a session and its guests.

    A guest's command needs neither a row in the inbox nor a key that stays there: it is made with the event it leaves by, and in no
    other commit than this one.
    """
    if not guests:
        return own
    taken = {(guest.actor.stream, guest.tickets[0].key) for guest in guests}
    left = tuple(post for post in own.posts if (post.stream, post.key) not in taken)
    writes = tuple(write for guest in guests for write in guest.batch.writes)
    return Batch(own.writes + writes, own.consumed, left + tuple(post for guest in guests for post in guest.batch.posts))
