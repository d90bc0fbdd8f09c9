"""One session's single writer: take every command that waits, decide, append once, publish."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain

from curtainwall.model import (
    SYSTEM,
    AnyCommand,
    AnyEvent,
    Batch,
    Broken,
    CallPermitted,
    Clock,
    CommandRefused,
    Conflict,
    Consumed,
    CountDenials,
    CurtainwallError,
    ExpireApprovals,
    GrantGiven,
    GrantScope,
    Inbox,
    Lease,
    Log,
    Millis,
    Moment,
    Outcome,
    Post,
    RepairSession,
    StreamId,
    TryLater,
    Write,
    project_stream,
)
from curtainwall.runtime.feed import Tail
from curtainwall.session import ProjectState, Rules, SessionState, Standing, decide, fold, fold_project, lift, posts_of, turned_away
from curtainwall.session import apply as apply_event

_PAGE = 500
_A_MOMENT, _A_WHILE = 0.005, 1.0

RulesNow = Callable[[], Rules]
"""Gives the rules in force; a reload of the policy shows at the next command."""

Listen = Callable[[SessionState], None]
"""Hears each time what is durable by now."""

Follow = Callable[[SessionState, Sequence[AnyEvent]], AnyCommand | None]
"""Looks at what was just decided, and where it leads; names a command that is decided along with it, in the same commit."""


class Neighbours:
    """The sessions that are in memory in this process, and how another one gets there."""

    def __init__(self, take_up: Callable[[StreamId], object] = lambda _: None) -> None:
        self.take_up = take_up
        self.actors: dict[StreamId, Actor] = {}
        self.arrivals = 0
        """How many have come so far. Whoever comes may have posted commands when another process decided for it."""

    def add(self, actor: "Actor") -> None:
        """Let others know of one."""
        self.actors[actor.stream] = actor
        self.arrivals += 1


@dataclass(slots=True)
class _Ticket:
    command: AnyCommand
    key: str | None
    done: "asyncio.Future[tuple[AnyEvent, ...]] | None"
    events: tuple[AnyEvent, ...] = ()
    refusal: CommandRefused | None = None
    is_owed: bool = False


class Actor:
    """The owner of one session's log while it holds the lease.

    INVARIANT: `state` is the fold of what is durably stored, never of what is only meant to be.
    """

    def __init__(self, stream: StreamId, lease: Lease, log: Log, inbox: Inbox, clock: Clock, rules: RulesNow) -> None:
        self.stream = stream
        self.holders = 0
        # How often the session was used: whoever wants to drop it sees by this that nobody did meanwhile.
        self.uses = 0
        # Denials that no event tells of so far.
        self.uncounted = 0
        # Whether another process waits for the session.
        self.is_wanted = False
        self._lease = lease
        self._log = log
        self._inbox = inbox
        self._clock = clock
        self._rules = rules
        self._neighbours = Neighbours()
        self._arrivals = 0
        self._tickets: list[_Ticket] = []
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
        self._alarm: asyncio.Task[None] | None = None
        self.state = SessionState()
        self.tail = Tail(stream, 0)
        self._logged = 0
        self._project = ProjectState()

    def start(self, neighbours: Neighbours) -> None:
        """Fold the log, close what a crash left open, and begin to take commands."""
        self._neighbours = neighbours
        self._refold()
        if self.state.opened is not None:
            self._tickets.append(_Ticket(RepairSession(by=SYSTEM), None, None, is_owed=True))
            self._tickets.append(_Ticket(ExpireApprovals(by=SYSTEM), None, None, is_owed=True))
        self._work.set()
        self._task = asyncio.create_task(self._run(), name=f"actor {self.stream}")

    async def submit(self, command: AnyCommand, key: str | None = None) -> tuple[AnyEvent, ...]:
        """Decide one command and return its events once they are durable."""
        if self._task is None or self._task.done():
            raise Conflict("this process no longer decides for the session")
        if key is not None and (twin := self._keyed.get(key)) is not None:
            return await _shared(twin)
        done: asyncio.Future[tuple[AnyEvent, ...]] = asyncio.get_running_loop().create_future()
        if key is not None:
            self._keyed[key] = done
            done.add_done_callback(lambda _: self._keyed.pop(key, None))
        self._tickets.append(_Ticket(command, key, done))
        self._work.set()
        return await done

    def owe(self, command: AnyCommand) -> None:
        """Have a command decided with whatever comes next, or in a moment by itself; it is written before anything that comes after it."""
        if self._task is None or self._task.done():
            raise Conflict("this process no longer decides for the session")
        self._tickets.append(_Ticket(command, None, None, is_owed=True))
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
    def seq(self) -> int:
        """The number of the last entry that the state holds."""
        return self.tail.seq

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
    def heard_by(self, listen: Listen) -> Generator[None]:
        """Let somebody hear for a while of whatever is durable, as soon as it is."""
        self._listeners.append(listen)
        try:
            yield
        finally:
            self._listeners.remove(listen)

    @property
    def is_idle(self) -> bool:
        """Tell whether the session can be dropped from memory: nobody holds it, nothing waits, no permitted call is out."""
        running = any(call.standing is Standing.PERMITTED for call in self.state.calls.values())
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
        tasks = [task for task in (self._task, self._alarm) if task is not None]
        for task in tasks:
            task.cancel()
        if not self._is_deciding and not self._tickets and not self.uncounted:
            # Nothing is on its way to the log, and nothing will be: whoever comes next need not wait until the tasks have ended.
            self._lease.release()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._may_rest.set()
        await self._settle_debts()
        for ticket in self._tickets:
            if ticket.done is not None and not ticket.done.done():
                ticket.done.set_exception(Conflict("this process let go of the session before deciding"))
        self._tickets = []
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
                    tickets += (_Ticket(row.command, row.key, None) for row in rows if row.key not in direct)
                    self._inbox_changed = False
                if tickets:
                    await self._settle(tickets)
            except CurtainwallError as error:
                # Fail closed: nothing was written, everyone who waits is told, and the state is what the log says.
                _fail(tickets, error)
                self._try_again(tickets)
            except Exception as error:  # noqa: BLE001 - a fault of ours must not leave anyone waiting for ever
                _fail(tickets, Broken(f"a command could not be decided: {type(error).__name__}: {error}"))
                self._try_again(tickets)
            except asyncio.CancelledError:
                _fail(tickets, Conflict("this process let go of the session before deciding"))
                raise
            else:
                # Not where it failed: a deadline that has passed would have it tried again at once, and again.
                self._set_alarm()
            finally:
                self._is_deciding = False
            self._may_rest.set()

    def _try_again(self, tickets: list[_Ticket]) -> None:
        """Look in a while at what nobody else brings again: what is owed, and what waits in the inbox."""
        self._tickets[:0] = [ticket for ticket in tickets if ticket.is_owed]
        self._inbox_changed = True
        asyncio.get_running_loop().call_later(_A_WHILE, self._work.set)

    async def _settle_debts(self) -> None:
        """Write down what is owed before somebody else can decide."""
        owed = [ticket for ticket in self._tickets if ticket.is_owed]
        if self.uncounted:
            owed.append(_Ticket(CountDenials(by=SYSTEM, count=self.uncounted), None, None, is_owed=True))
        with suppress(CurtainwallError):
            if owed:
                await self._settle(owed)

    async def _settle(self, tickets: list[_Ticket]) -> None:
        for attempt in range(20):
            own = Decision(self, tickets, *self._decide_all(tickets))
            guests: list[Decision] = []
            try:
                if attempt == 0:
                    self._invite(own.batch.posts, guests)
                batch = _together(own.batch, guests)
                if batch.writes or batch.consumed:
                    await self._log.append(batch)
            except Conflict:
                self._refold()
                tickets[:] = [ticket for ticket in tickets if not self._was_decided(ticket)]
                continue
            else:
                for decision in (own, *guests):
                    decision.actor.take_in(decision)
                self._tell_neighbours(batch.posts)
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
        tickets = [_Ticket(post.command, post.key, None)]
        decision = Decision(self, tickets, *self._decide_all(tickets))
        self._is_free.clear()
        self.uses += 1
        return decision

    def take_in(self, decision: "Decision") -> None:
        """Let the state be what is durable by now, and tell everyone who waits."""
        self.state = decision.draft
        self._note(decision.batch)
        for ticket in decision.tickets:
            _tell(ticket)
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

    def _tell_neighbours(self, posts: Sequence[Post]) -> None:
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

    def _decide_all(self, tickets: list[_Ticket]) -> tuple[SessionState, Batch]:
        draft, batch = self._decide_with(self._rules_now(), tickets)
        # Before anyone is asked, and before something is added to the project, see what others granted there meanwhile.
        if (draft.approvals is not self.state.approvals or len(batch.writes) > 1) and self._look_at_project(draft):
            draft, batch = self._decide_with(self._rules_now(), tickets)
        return draft, batch

    def _rules_now(self) -> Rules:
        return self._rules().of_session(self.state.opened).with_project_grants(self._project.grants)

    def _decide_with(self, rules: Rules, tickets: list[_Ticket]) -> tuple[SessionState, Batch]:
        draft = self.state.copy()
        own: list[AnyEvent] = []
        for_project: list[AnyEvent] = []
        consumed: list[Consumed] = []
        by_key: dict[str, _Ticket] = {}
        for ticket in tickets:
            if ticket.key is not None and (same := by_key.setdefault(ticket.key, ticket)) is not ticket:
                # The same key twice is the same command, also where one came directly and one by the inbox at the same moment.
                ticket.events, ticket.refusal = same.events, same.refusal
                continue
            self._decide_one(draft, ticket, rules)
            for event in ticket.events:
                if isinstance(event, GrantGiven) and event.grant.scope is GrantScope.PROJECT:
                    for_project.append(event)
                    continue
                apply_event(draft, event)
                own.append(event)
            if ticket.key is not None:
                consumed.append(Consumed(self.stream, ticket.key, _outcome(ticket, self.seq + len(own))))
        for command in self._following(draft, own):
            more = _Ticket(command, None, None)
            self._decide_one(draft, more, rules)
            for event in more.events:
                apply_event(draft, event)
                own.append(event)
        writes = [Write(self.stream, self.seq, tuple(own))] if own or consumed else []
        if draft.opened is not None and (for_project or _used_project(own, self._project)):
            # The decision stands on the project's grants: if one was revoked meanwhile, it is made again.
            writes.append(Write(project_stream(draft.workspace.path), self._project.seq, tuple(for_project)))
        refused = (turned_away(ticket.command, str(ticket.refusal)) for ticket in tickets if ticket.refusal is not None)
        return draft, Batch(tuple(writes), tuple(consumed), (*posts_of(own), *chain.from_iterable(refused)))

    def _decide_one(self, draft: SessionState, ticket: _Ticket, rules: Rules) -> None:
        moment = Moment(at=self._clock.now(), seed=self._clock.entropy(16), logged=self._logged)
        ticket.events, ticket.refusal = (), None
        try:
            ticket.events = decide(draft, ticket.command, rules, moment)
        except CommandRefused as refusal:
            ticket.refusal = refusal
        except Exception as error:  # noqa: BLE001 - fail closed: what we cannot decide is refused, and the others go on
            ticket.refusal = CommandRefused(f"this cannot be decided: {type(error).__name__}: {error}")

    def _following(self, draft: SessionState, events: Sequence[AnyEvent]) -> Generator[AnyCommand]:
        for follow in tuple(self._follows) if events else ():
            command = follow(draft, events)
            if command is not None:
                yield command

    def _look_at_project(self, state: SessionState) -> bool:
        """Take in what others granted or revoked in the project, and tell whether there was anything."""
        if state.opened is None:
            return False
        stream = project_stream(state.workspace.path)
        if self._log.head(stream) == self._project.seq:
            return False
        new = [lift(entry) for entry in self._log.read(stream, self._project.seq)]
        self._project = fold_project(new, self._project)
        return True

    def _note(self, batch: Batch) -> None:
        for write in batch.writes:
            if write.stream == self.stream:
                self.tail.extend(write.events)
                for _, _, payload in write.encoded:
                    self._logged += len(payload)
            else:
                self._project = fold_project(write.events, self._project)

    def _refold(self) -> None:
        """Fold what is stored, page by page, so that a long log does not have to fit into memory."""
        state, seq, logged = SessionState(), 0, 0
        while page := self._log.read(self.stream, seq, _PAGE):
            state = fold(map(lift, page), state)
            seq, logged = page[-1].seq, logged + sum(len(entry.payload) for entry in page)
        self.state, self.tail, self._logged = state, Tail(self.stream, seq), logged
        self._tell_grown()
        self._project = ProjectState()
        self._look_at_project(state)

    def _tell_grown(self) -> None:
        self._has_grown.set()
        for listen in tuple(self._listeners):
            listen(self.state)

    def _was_decided(self, ticket: _Ticket) -> bool:
        outcome = self._inbox.outcome(self.stream, ticket.key) if ticket.key is not None else None
        if outcome is None:
            return False
        if ticket.done is not None and not ticket.done.done():
            ticket.done.set_exception(Conflict(f"command `{ticket.key}` was decided by another process"))
        return True

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        deadlines = [open_.asked.deadline for open_ in self.state.approvals.values() if open_.asked.deadline is not None]
        if deadlines:
            self._alarm = asyncio.create_task(self._expire_at(min(deadlines)))

    async def _expire_at(self, at: Millis) -> None:
        await self._clock.sleep_until(at)
        self._tickets.append(_Ticket(ExpireApprovals(by=SYSTEM), None, None, is_owed=True))
        self._work.set()


@dataclass(frozen=True, slots=True)
class Decision:
    """What one session makes of some commands, before it is durable."""

    actor: Actor
    tickets: Sequence[_Ticket]
    draft: SessionState
    batch: Batch


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


async def _shared(twin: "asyncio.Future[tuple[AnyEvent, ...]]") -> tuple[AnyEvent, ...]:
    """Return what came of the same command from somebody who was a moment earlier."""
    try:
        return await asyncio.shield(twin)
    except asyncio.CancelledError:
        if twin.cancelled():
            raise Conflict("whoever gave this command first went away before it was decided") from None
        raise


def _used_project(events: list[AnyEvent], project: ProjectState) -> bool:
    if not project.grants:
        return False
    return any(name in project.grants for event in events if isinstance(event, CallPermitted) for name in event.answered_by)


def _outcome(ticket: _Ticket, seq: int) -> Outcome:
    if ticket.refusal is None:
        return Outcome(seq=seq)
    return Outcome(code=ticket.refusal.code, message=str(ticket.refusal))


def _tell(ticket: _Ticket) -> None:
    if ticket.done is None or ticket.done.done():
        return
    if ticket.refusal is not None:
        ticket.done.set_exception(ticket.refusal)
    else:
        ticket.done.set_result(ticket.events)


def _fail(tickets: list[_Ticket], error: CurtainwallError) -> None:
    for ticket in tickets:
        if ticket.done is not None and not ticket.done.done():
            ticket.done.set_exception(error)
