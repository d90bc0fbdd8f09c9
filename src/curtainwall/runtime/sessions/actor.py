"""A session's single writer: takes all waiting commands, decides them, appends once, publishes."""

import asyncio
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress

from curtainwall.model import (
    SYSTEM,
    AnyCommand,
    AnyEvent,
    ApprovalId,
    Batch,
    Broken,
    Conflict,
    CountDenials,
    CurtainwallError,
    ExpireApprovals,
    Lease,
    Post,
    RepairSession,
    Save,
    StreamId,
    TryLater,
    record,
)
from curtainwall.runtime.sessions.alarm import Alarm, Deadline
from curtainwall.runtime.sessions.decider import Decider, DecisionDraft, Follow, Ticket, fail, save_programs, shared
from curtainwall.runtime.sessions.feed import Tail
from curtainwall.runtime.sessions.folds import FoldedLog
from curtainwall.runtime.sessions.stores import Stores
from curtainwall.session import CallStatus, SessionState, is_application

_A_MOMENT, _A_WHILE = 0.005, 1.0

Listen = Callable[[SessionState], None]
"""Called with the durable state each time it changes."""


class Neighbours:
    """The sessions in memory in this process, how to load another one, who is notified when one has grown, and their alarm."""

    def __init__(self, take_up: Callable[[StreamId], object], grown: Callable[[StreamId], object], alarm: Alarm) -> None:
        self.take_up = take_up
        self.grown = grown
        self.alarm = alarm
        self.actors: dict[StreamId, Actor] = {}
        self.arrivals = 0
        """How many sessions were loaded so far. Each may have posted commands while another process owned it."""

    def add(self, actor: "Actor") -> None:
        """Make an actor known to the others."""
        self.actors[actor.stream] = actor
        self.arrivals += 1


class Actor:
    """The owner of one session's log while it holds the lease."""

    def __init__(self, stream: StreamId, lease: Lease, stores: Stores, decider: Decider, neighbours: Neighbours) -> None:
        self.stream = stream
        self.holders = 0
        # How often the session was used. If it has not changed, the session can be dropped.
        self.uses = 0
        # Denials that no event has recorded yet.
        self.uncounted = 0
        # Whether another process waits for the session.
        self.is_wanted = False
        self._lease = lease
        self._log = stores.log
        self._inbox = stores.inbox
        self._decider = decider
        self._neighbours = neighbours
        self._arrivals = 0
        self._tickets: list[Ticket] = []
        # Commands that are being decided; the inbox knows those that are done.
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
        self._decider.refold()
        if self.state.opened is not None:
            self._tickets.append(Ticket(RepairSession(by=SYSTEM), is_owed=True))
            self._tickets.append(Ticket(ExpireApprovals(by=SYSTEM), is_owed=True))
        self._work.set()
        self._task = asyncio.create_task(self._run(), name=f"actor {self.stream}")

    async def submit(self, command: AnyCommand, key: str | None = None, save: Save | None = None) -> tuple[AnyEvent, ...]:
        """Decide one command and return its events once they are durable. `save` is called if a program must be stored with them."""
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
        """Decide a command along with the next ones, or alone after a moment. It is written before anything submitted after it."""
        if self._task is None or self._task.done():
            raise Conflict("this process no longer decides for the session")
        self._tickets.append(Ticket(command, is_owed=True))
        asyncio.get_running_loop().call_later(_A_MOMENT, self._work.set)

    def look_at_inbox(self) -> None:
        """Take up commands that other processes posted."""
        self._inbox_changed = True
        self._work.set()

    async def catch_up(self, seq: int) -> None:
        """Return when the state includes that entry; the log shows an entry a moment earlier."""
        while self.seq < seq:
            self._has_grown.clear()
            await self._has_grown.wait()

    async def wait_for_growth(self) -> None:
        """Return when something more is durable."""
        self._has_grown.clear()
        await self._has_grown.wait()

    @property
    def state(self) -> SessionState:
        """The durable state."""
        return self._decider.state

    @property
    def folded(self) -> FoldedLog:
        """The durable state, with its place in the log."""
        return self._decider.folded

    def saved_at(self, seq: int) -> None:
        """Take note of a snapshot that ends at an entry."""
        self._decider.saved_at(seq)

    @property
    def tail(self) -> Tail:
        """The last entries."""
        return self._decider.tail

    @property
    def seq(self) -> int:
        """The number of the last entry that the state holds."""
        return self._decider.tail.seq

    @contextmanager
    def followed_by(self, follow: Follow) -> Generator[None]:
        """Let a callback add to each decision for a while. It sees events that are not durable yet, and may see them twice."""
        self._follows.append(follow)
        try:
            yield
        finally:
            self._follows.remove(follow)
            self._may_rest.set()

    @contextmanager
    def observed_by(self, listen: Listen) -> Generator[None]:
        """Call a listener for a while with each new durable state."""
        self._listeners.append(listen)
        try:
            yield
        finally:
            self._listeners.remove(listen)

    @property
    def deadlines(self) -> tuple[Deadline, ...]:
        """The deadlines of the open approvals that have one."""
        asked = (open_.asked for open_ in self.state.approvals.values())
        return tuple(Deadline(it.approval, it.at, it.deadline) for it in asked if it.deadline is not None)

    def expire(self, approvals: Collection[ApprovalId]) -> None:
        """Expire approvals whose deadline has passed, as soon as that can be written."""
        self._tickets.append(Ticket(ExpireApprovals(by=SYSTEM, overdue=tuple(approvals)), is_owed=True))
        self._work.set()

    @property
    def is_idle(self) -> bool:
        """Tell whether the session can be dropped from memory: nobody holds it, nothing is pending, no permitted call is running."""
        # Accepted changes are applied by a holder, or by whoever takes the session over.
        running = any(call.standing is CallStatus.PERMITTED and not is_application(call) for call in self.state.calls.values())
        return not (self.holders or self._tickets or self._work.is_set() or self._is_deciding or running) and self._is_free.is_set()

    @property
    def is_needed(self) -> bool:
        """Tell whether the session is active, or someone here waits for what happens next in it."""
        return not self.is_idle or bool(self._follows)

    async def rest(self) -> None:
        """Return when the session is not needed here any more, or was released."""
        while self.is_needed and self._task is not None and not self._task.done():
            self._may_rest.clear()
            await self._may_rest.wait()

    def lose_holder(self) -> None:
        """Count one holder less."""
        self.holders -= 1
        self._may_rest.set()

    async def stop(self) -> None:
        """Release the session. Commands in the inbox stay for the next owner."""
        await self._is_free.wait()
        if self._task is not None:
            self._task.cancel()
        if not self._is_deciding and not self._tickets and not self.uncounted:
            # Nothing will be written any more, so the next owner need not wait until the task has ended.
            self._lease.release()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
            # The task's exception and traceback would keep this actor alive until the next garbage collection.
            self._task = None
        self._may_rest.set()
        await self._settle_debts()
        fail(self._tickets, Conflict("this process let go of the session before deciding"))
        self._tickets = []
        # Waiters for news of the session may keep a reference to this actor for long.
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
                # Fail closed: nothing was written, everyone who waits gets the error, and the state still matches the log.
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
        """Retry later what nobody else will submit again: owed commands, and those in the inbox."""
        self._tickets[:0] = [ticket for ticket in tickets if ticket.is_owed]
        self._inbox_changed = True
        asyncio.get_running_loop().call_later(_A_WHILE, self._work.set)

    async def _settle_debts(self) -> None:
        """Write owed commands before another process can decide."""
        owed = [ticket for ticket in self._tickets if ticket.is_owed]
        if self.uncounted:
            owed.append(Ticket(CountDenials(by=SYSTEM, count=self.uncounted), is_owed=True))
        with suppress(CurtainwallError):
            if owed:
                await self._settle(owed)

    async def _settle(self, tickets: list[Ticket]) -> None:
        for attempt in range(20):
            draft = self._decider.decide(tickets, tuple(self._follows))
            if any(ticket.decided.needs_program for ticket in draft.decided):
                # Programs are saved only if needed: most calls are reads without an ask, and saving would cost more than the read.
                if failed := await save_programs(draft.decided):
                    tickets[:] = [ticket for ticket in tickets if ticket not in failed]
                    continue
                draft = self._decider.with_programs(draft)
            own = Decision(self, tickets, draft, self._decider.batch(draft))
            guests: list[Decision] = []
            try:
                if attempt == 0:
                    self._invite(own.batch.posts, guests)
                batch = _merge_batches(own.batch, guests)
                if batch.writes or batch.consumed:
                    await self._log.append(batch)
            except Conflict:
                self._decider.refold()
                self._tell_grown()
                tickets[:] = [ticket for ticket in tickets if not self._was_decided(ticket)]
                continue
            else:
                # Recipients go first: they have work to do, and the sender waits for it anyway.
                for decision in (*guests, own):
                    decision.actor.take_in(decision)
                self._wake_neighbours(batch.posts)
                return
            finally:
                for decision in (own, *guests):
                    decision.actor.set_free()
        raise TryLater(f"others keep writing to `{self.stream}`")

    def join(self, post: Post) -> "Decision | None":
        """Decide a command from another session of this process, to be written in the same commit; None if it must be posted instead.

        This is possible only if the session is at rest and someone waits for what happens next. It is blocked until `set_free`.
        """
        is_resting = self._is_free.is_set() and not (self._is_deciding or self._tickets or self._inbox_changed)
        if not is_resting or not self._follows or self._task is None or self._task.done() or self._has_mail():
            return None
        tickets = [Ticket(post.command, post.key)]
        draft = self._decider.decide(tickets, tuple(self._follows))
        decision = Decision(self, tickets, draft, self._decider.batch(draft))
        self._is_free.clear()
        self.uses += 1
        return decision

    def take_in(self, decision: "Decision") -> None:
        """Make a durable decision the current state, and notify everyone who waits."""
        self._decider.take_in(decision.draft, decision.batch)
        self._neighbours.alarm.set(self.stream, self.deadlines)
        for ticket in decision.tickets:
            ticket.tell()
        self._tell_grown()

    def set_free(self) -> None:
        """Let the session decide on its own again."""
        self._is_free.set()
        self._may_rest.set()

    def _invite(self, posts: Sequence[Post], guests: "list[Decision]") -> None:
        """Let the recipients of our commands decide in the same commit if they can. None of us is stopped meanwhile."""
        for post in posts:
            recipient = self._neighbours.actors.get(post.stream)
            try:
                decision = None if recipient is None else recipient.join(post)
            except Exception:  # noqa: BLE001 - the recipient reports its own faults: the command is posted, and it decides alone
                decision = None
            if decision is not None:
                self._is_free.clear()
                guests.append(decision)

    def _has_mail(self) -> bool:
        """Tell whether a newly loaded session had posted something here before, which must not be overtaken."""
        if self._arrivals == self._neighbours.arrivals:
            return False
        self._arrivals = self._neighbours.arrivals
        if not self._inbox.waiting(self.stream):
            return False
        self.look_at_inbox()
        return True

    def _wake_neighbours(self, posts: Sequence[Post]) -> None:
        """Ensure that no later command of ours overtakes one just posted, and that none waits for a deleted session."""
        for post in posts:
            recipient = self._neighbours.actors.get(post.stream)
            if recipient is not None:
                recipient.look_at_inbox()
                continue
            with suppress(CurtainwallError):
                if self._log.head(post.stream) == 0:
                    # It was just deleted, and nobody else would ever look there.
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


@record
class Decision:
    """One session's decisions about some commands, before they are durable."""

    actor: Actor
    tickets: Sequence[Ticket]
    draft: DecisionDraft
    batch: Batch
    """What must be written for it."""


def _merge_batches(own: Batch, guests: Sequence[Decision]) -> Batch:
    """Return one batch for a session and its guests.

    A guest's command needs neither an inbox row nor a lasting key: it is created in this commit, by the event that sends it, and in no
    other.
    """
    if not guests:
        return own
    taken = {(guest.actor.stream, guest.tickets[0].key) for guest in guests}
    posts = tuple(post for post in own.posts if (post.stream, post.key) not in taken)
    writes = tuple(write for guest in guests for write in guest.batch.writes)
    return Batch(own.writes + writes, own.consumed, posts + tuple(post for guest in guests for post in guest.batch.posts))
