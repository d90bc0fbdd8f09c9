"""What one session knows, and what it makes of commands: nothing here waits, and nothing is written."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain

from curtainwall.model import (
    AnyCommand,
    AnyEvent,
    Batch,
    CallPermitted,
    Clock,
    CommandRefused,
    Conflict,
    Consumed,
    GrantGiven,
    GrantScope,
    Log,
    Moment,
    Outcome,
    RequestCall,
    Save,
    SavedProgram,
    StreamId,
    Write,
    project_stream,
)
from curtainwall.runtime.sessions.feed import Tail
from curtainwall.session import (
    ProjectState,
    Rules,
    SessionState,
    blobs_of,
    decide,
    decide_by_log,
    fold,
    fold_project,
    is_decided_by_log,
    lift,
    needs_program,
    posts_of,
    rejection_posts,
    with_program,
)
from curtainwall.session import apply as apply_event


@dataclass(slots=True, eq=False)
class Ticket:
    """One command, what was decided about it, and whoever is told; one that is owed is brought again where it fails."""

    command: AnyCommand
    key: str | None = None
    done: "asyncio.Future[tuple[AnyEvent, ...]] | None" = None
    events: tuple[AnyEvent, ...] = ()
    refusal: CommandRefused | None = None
    is_owed: bool = False
    save: Save | None = None
    """Saves the program that gives the command, where the decision must not be written without it."""

    def outcome(self, seq: int) -> Outcome:
        """Return what the inbox keeps of it, where its events end the log at an entry."""
        if self.refusal is None:
            return Outcome(seq=seq)
        return Outcome(code=self.refusal.code, message=str(self.refusal))

    def tell(self) -> None:
        """Tell what was decided, now that it is durable."""
        if self.refusal is not None:
            self.fail(self.refusal)
        elif self.done is not None and not self.done.done():
            self.done.set_result(self.events)

    @property
    def needs_program(self) -> bool:
        """Tell whether what was decided has to wait for its program to be saved."""
        return needs_program(self.command, self.events)

    def take_program(self, program: SavedProgram) -> None:
        """Let a program be written along with what was decided, and with whatever is decided in its place."""
        assert isinstance(self.command, RequestCall)
        self.events = with_program(self.command, self.events, program)
        self.command = self.command.model_copy(update={"program": program})

    def fail(self, error: Exception) -> None:
        """Tell why nothing came of it."""
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)


def fail(tickets: Iterable[Ticket], error: Exception) -> None:
    """Tell why nothing came of any of them."""
    for ticket in tickets:
        ticket.fail(error)


async def save_programs(tickets: Iterable[Ticket]) -> list[Ticket]:
    """Save the programs without which decisions must not be written; return those that have come to nothing because of that."""
    needing = [ticket for ticket in tickets if ticket.needs_program]
    saved = await asyncio.gather(*map(_saved, needing), return_exceptions=True)
    failed: list[Ticket] = []
    for ticket, program in zip(needing, saved, strict=True):
        if isinstance(program, SavedProgram):
            ticket.take_program(program)
        else:
            ticket.fail(program if isinstance(program, Exception) else Conflict("the program that makes this call was not saved"))
            failed.append(ticket)
    return failed


async def _saved(ticket: Ticket) -> SavedProgram:
    assert ticket.save is not None
    if ticket.done is not None and ticket.done.cancelled():
        raise Conflict("whoever gave this command went away before it was decided")
    return await ticket.save()


async def shared(twin: "asyncio.Future[tuple[AnyEvent, ...]]") -> tuple[AnyEvent, ...]:
    """Return what came of the same command from somebody who was a moment earlier."""
    try:
        return await asyncio.shield(twin)
    except asyncio.CancelledError:
        if twin.cancelled():
            raise Conflict("whoever gave this command first went away before it was decided") from None
        raise


_PAGE = 500

RulesNow = Callable[[], Rules]
"""Gives the rules in force; a reload of the policy shows at the next command."""

Follow = Callable[[SessionState, Sequence[AnyEvent]], AnyCommand | None]
"""Looks at what was just decided, and where it leads; names a command that is decided along with it, in the same commit."""


@dataclass(frozen=True, slots=True)
class DecisionDraft:
    """Where commands lead, before it is durable."""

    state: SessionState
    batch: Batch
    given: Sequence[Ticket]
    """The commands that were given, in their order."""
    decided: Sequence[Ticket]
    """Those that have events of their own, with what follows from them, in the order in which they are written."""


class Decider:
    """The log of one session as it is known here, and the decisions that stand on it.

    INVARIANT: `state` is the fold of what is durably stored, never of what is only meant to be.
    """

    def __init__(self, stream: StreamId, log: Log, clock: Clock, rules: RulesNow) -> None:
        self.state = SessionState()
        self.tail = Tail(stream, 0)
        self._stream = stream
        self._log = log
        self._clock = clock
        self._rules = rules
        self._logged = 0
        self._project = ProjectState()

    def refold(self) -> None:
        """Fold what is stored, page by page, so that a long log does not have to fit into memory."""
        state, seq, logged = SessionState(), 0, 0
        while page := self._log.read(self._stream, seq, _PAGE):
            events = [lift(entry) for entry in page]
            state = fold(events, state)
            seq, logged = page[-1].seq, logged + sum(_weight(entry.payload, event) for entry, event in zip(page, events, strict=True))
        self.state, self.tail, self._logged = state, Tail(self._stream, seq), logged
        self._project = ProjectState()
        self._look_at_project(state)

    def decide(self, tickets: Sequence[Ticket], follows: Sequence[Follow]) -> DecisionDraft:
        """Decide commands in their order, and return where that leads with what has to be written for it."""
        draft = self._decide_with(cache(self._rules_now), tickets, follows)
        # Before anyone is asked, and before something is added to the project, see what others granted there meanwhile.
        if (draft.state.approvals is not self.state.approvals or len(draft.batch.writes) > 1) and self._look_at_project(draft.state):
            draft = self._decide_with(cache(self._rules_now), tickets, follows)
        return draft

    def with_programs(self, draft: DecisionDraft) -> DecisionDraft:
        """Return a draft with the programs that were saved for it since; nothing is decided again."""
        state = self.state.copy()
        for ticket in draft.decided:
            _apply_own(state, ticket)
        return self._draft(state, draft.given, draft.decided)

    def take_in(self, draft: DecisionDraft) -> None:
        """Let the state be what is durable by now."""
        self.state = draft.state
        for write in draft.batch.writes:
            if write.stream == self._stream:
                self.tail.extend(write.events)
                for (_, _, payload), event in zip(write.encoded, write.events, strict=True):
                    self._logged += _weight(payload, event)
            else:
                self._project = fold_project(write.events, self._project)

    def _rules_now(self) -> Rules:
        return self._rules().of_session(self.state.opened).with_project_grants(self._project.grants)

    def _decide_with(self, rules: RulesNow, tickets: Sequence[Ticket], follows: Sequence[Follow]) -> DecisionDraft:
        state = self.state.copy()
        own: list[AnyEvent] = []
        decided: list[Ticket] = []
        by_key: dict[str, Ticket] = {}
        for ticket in tickets:
            if ticket.key is not None and (same := by_key.setdefault(ticket.key, ticket)) is not ticket:
                # The same key twice is the same command, also where one came directly and one by the inbox at the same moment.
                ticket.events, ticket.refusal = same.events, same.refusal
                continue
            self._decide_one(state, ticket, rules)
            own += _apply_own(state, ticket)
            decided.append(ticket)
        for command in _following(follows, state, own):
            more = Ticket(command)
            self._decide_one(state, more, rules)
            own += _apply_own(state, more)
            decided.append(more)
        return self._draft(state, tickets, decided)

    def _draft(self, state: SessionState, given: Sequence[Ticket], decided: Sequence[Ticket]) -> DecisionDraft:
        """Return what has to be written for commands that were decided."""
        own: list[AnyEvent] = []
        for_project: list[AnyEvent] = []
        consumed: list[Consumed] = []
        for ticket in decided:
            for event in ticket.events:
                (for_project if _is_for_project(event) else own).append(event)
            if ticket.key is not None:
                consumed.append(Consumed(self._stream, ticket.key, ticket.outcome(self.tail.seq + len(own))))
        writes = [Write(self._stream, self.tail.seq, tuple(own))] if own or consumed else []
        if state.opened is not None and (for_project or _used_project(own, self._project)):
            # The decision stands on the project's grants: if one was revoked meanwhile, it is made again.
            writes.append(Write(project_stream(state.workspace.path), self._project.seq, tuple(for_project)))
        refused = (rejection_posts(ticket.command, str(ticket.refusal)) for ticket in given if ticket.refusal is not None)
        batch = Batch(tuple(writes), tuple(consumed), (*posts_of(own), *chain.from_iterable(refused)))
        return DecisionDraft(state, batch, given, decided)

    def _decide_one(self, draft: SessionState, ticket: Ticket, rules: RulesNow) -> None:
        """Decide one command; rules are asked for only where it needs some, and where they do not load, nothing at all is decided."""
        command = ticket.command
        decided = partial(decide_by_log, draft, command) if is_decided_by_log(command) else partial(decide, draft, command, rules())
        moment = Moment(at=self._clock.now(), seed=self._clock.entropy(16), logged=self._logged)
        ticket.events, ticket.refusal = (), None
        try:
            ticket.events = decided(moment)
        except CommandRefused as refusal:
            ticket.refusal = refusal
        except Exception as error:  # noqa: BLE001 - fail closed: what we cannot decide is refused, and the others go on
            ticket.refusal = CommandRefused(f"this cannot be decided: {type(error).__name__}: {error}")
        if ticket.needs_program and ticket.save is None:
            # INVARIANT: a program is saved in the same commit as every ask of its and every permit for more than a look.
            ticket.events, ticket.refusal = (), CommandRefused("the program that makes this call has to be saved along with it")

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


def _is_for_project(event: AnyEvent) -> bool:
    return isinstance(event, GrantGiven) and event.grant.scope is GrantScope.PROJECT


def _apply_own(state: SessionState, ticket: Ticket) -> list[AnyEvent]:
    """Apply the events of a command that belong to the session, and return them."""
    own = [event for event in ticket.events if not _is_for_project(event)]
    for event in own:
        apply_event(state, event)
    return own


def _weight(payload: bytes, event: AnyEvent) -> int:
    """Return how many bytes an entry takes of what a session may log, those that are kept beside the log included."""
    blobs = blobs_of(event)
    return len(payload) + sum(blob.size for blob in blobs) if blobs else len(payload)


def _following(follows: Sequence[Follow], draft: SessionState, events: Sequence[AnyEvent]) -> Generator[AnyCommand]:
    for follow in follows if events else ():
        command = follow(draft, events)
        if command is not None:
            yield command


def _used_project(events: list[AnyEvent], project: ProjectState) -> bool:
    if not project.grants:
        return False
    return any(name in project.grants for event in events if isinstance(event, CallPermitted) for name in event.answered_by)
