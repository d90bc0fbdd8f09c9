"""A session's state, and its decisions on commands. Nothing here waits, and nothing is written."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from curtainwall.model import (
    AnyCommand,
    AnyEvent,
    Batch,
    CallPermitted,
    Clock,
    Conflict,
    Consumed,
    Log,
    Moment,
    Outcome,
    RequestCall,
    Save,
    SavedProgram,
    StreamId,
    Write,
    project_stream,
    record,
)
from curtainwall.runtime.sessions.feed import Tail
from curtainwall.runtime.sessions.folds import FoldedLog, SessionFolds
from curtainwall.session import (
    Decided,
    ProjectState,
    Rules,
    SessionRules,
    SessionState,
    decide_on,
    draft_after,
    fold_project,
    lift,
    logged_bytes,
)

_NOTHING = Decided()


@dataclass(slots=True, eq=False)
class Ticket:
    """One command, the decision on it, and the future that waits for it. An owed command is submitted again if it fails."""

    command: AnyCommand
    key: str | None = None
    done: "asyncio.Future[tuple[AnyEvent, ...]] | None" = None
    decided: Decided = _NOTHING
    is_owed: bool = False
    save: Save | None = None
    """Saves the program that issued the command, if the decision must not be written without it."""

    def outcome(self, seq: int) -> Outcome:
        """Return the outcome that the inbox keeps; `seq` is where the log ends after the command's events."""
        refusal = self.decided.refusal
        return Outcome(seq=seq) if refusal is None else Outcome(code=refusal.code, message=str(refusal))

    def tell(self) -> None:
        """Deliver the decision, now that it is durable."""
        if self.decided.refusal is not None:
            self.fail(self.decided.refusal)
        elif self.done is not None and not self.done.done():
            self.done.set_result(self.decided.events)

    def take_program(self, program: SavedProgram) -> None:
        """Attach a program to the decision, and to any decision that replaces it."""
        assert isinstance(self.command, RequestCall)
        self.decided = self.decided.with_program(self.command, program)
        self.command = self.command.model_copy(update={"program": program})

    def fail(self, error: Exception) -> None:
        """Deliver the error that prevented a decision."""
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)


def fail(tickets: Iterable[Ticket], error: Exception) -> None:
    """Deliver an error to all tickets."""
    for ticket in tickets:
        ticket.fail(error)


async def save_programs(tickets: Iterable[Ticket]) -> list[Ticket]:
    """Save the programs without which decisions must not be written; return the tickets for which that failed."""
    needing = [ticket for ticket in tickets if ticket.decided.needs_program]
    results = await asyncio.gather(*map(_save_program, needing), return_exceptions=True)
    failed: list[Ticket] = []
    for ticket, result in zip(needing, results, strict=True):
        if isinstance(result, SavedProgram):
            ticket.take_program(result)
        else:
            ticket.fail(result if isinstance(result, Exception) else Conflict("the program that makes this call was not saved"))
            failed.append(ticket)
    return failed


async def _save_program(ticket: Ticket) -> SavedProgram:
    assert ticket.save is not None
    if ticket.done is not None and ticket.done.cancelled():
        raise Conflict("whoever gave this command went away before it was decided")
    return await ticket.save()


async def shared(twin: "asyncio.Future[tuple[AnyEvent, ...]]") -> tuple[AnyEvent, ...]:
    """Return the result of the same command submitted by an earlier caller."""
    try:
        return await asyncio.shield(twin)
    except asyncio.CancelledError:
        if twin.cancelled():
            raise Conflict("whoever gave this command first went away before it was decided") from None
        raise


RulesNow = Callable[[], Rules]
"""Returns the rules in force; a reload of the policy takes effect at the next command."""

Follow = Callable[[SessionState, Sequence[AnyEvent]], AnyCommand | None]
"""Gets the new state and the events just decided; may return a command to be decided in the same commit."""


@record
class DecisionDraft:
    """The decisions on some commands and the resulting state, before they are durable."""

    state: SessionState
    given: Sequence[Ticket]
    """The submitted commands, in order."""
    decided: Sequence[Ticket]
    """The distinct commands, with those that followed from them, in the order in which they are written."""


class Decider:
    """The log of one session as known here, and the decisions based on it.

    INVARIANT: `state` is the fold of what is durably stored, never of what is only intended.
    """

    def __init__(self, stream: StreamId, log: Log, folds: SessionFolds, clock: Clock, rules: RulesNow) -> None:
        self.state = SessionState()
        self.tail = Tail(stream, 0)
        self._folds = folds
        self._folded = FoldedLog()
        self._stream = stream
        self._log = log
        self._clock = clock
        self._rules = rules
        self._logged = 0
        self._project = ProjectState()

    def refold(self) -> None:
        """Fold the stored log."""
        folded = self._folded = self._folds.fold(self._stream)
        self.state, self.tail, self._logged = folded.state, Tail(self._stream, folded.seq), folded.logged
        self._project = ProjectState()
        self._look_at_project(self.state)

    @property
    def folded(self) -> FoldedLog:
        """The durable state, with its place in the log. Only the log knows the hashes of entries written since the fold."""
        if self.tail.seq == self._folded.seq:
            return self._folded
        return replace(self._folded, state=self.state, seq=self.tail.seq, logged=self._logged, hash=None)

    def saved_at(self, seq: int) -> None:
        """Take note of a snapshot that ends at an entry."""
        self._folded = replace(self._folded, saved=max(seq, self._folded.saved))

    def decide(self, tickets: Sequence[Ticket], follows: Sequence[Follow]) -> DecisionDraft:
        """Decide commands in order, and return the decisions with the resulting state."""
        draft = self._decide_with(tickets, follows)
        # Before anyone is asked, and before something is added to the project, check what others granted there meanwhile.
        asks = draft.state.approvals is not self.state.approvals
        if (asks or self._concerns_project(draft)) and self._look_at_project(draft.state):
            draft = self._decide_with(tickets, follows)
        return draft

    def with_programs(self, draft: DecisionDraft) -> DecisionDraft:
        """Return the draft with the programs that were saved for it since, without deciding again."""
        return DecisionDraft(draft_after(self.state, (ticket.decided for ticket in draft.decided)), draft.given, draft.decided)

    def batch(self, draft: DecisionDraft) -> Batch:
        """Return the batch that writes a draft."""
        own: list[AnyEvent] = []
        consumed: list[Consumed] = []
        for ticket in draft.decided:
            own += ticket.decided.own
            if ticket.key is not None:
                consumed.append(Consumed(self._stream, ticket.key, ticket.outcome(self.tail.seq + len(own))))
        writes = [Write(self._stream, self.tail.seq, tuple(own))] if own or consumed else []
        opened = draft.state.opened
        if opened is not None and self._concerns_project(draft):
            # The decision depends on the project's grants: if one was revoked meanwhile, it is made again.
            for_project = chain.from_iterable(ticket.decided.for_project for ticket in draft.decided)
            writes.append(Write(project_stream(opened.workspace.path), self._project.seq, tuple(for_project)))
        posts = (ticket.decided.posts for ticket in draft.decided if ticket.decided.refusal is None)
        rejections = (ticket.decided.posts for ticket in draft.given if ticket.decided.refusal is not None)
        return Batch(tuple(writes), tuple(consumed), tuple(chain.from_iterable((*posts, *rejections))))

    def take_in(self, draft: DecisionDraft, batch: Batch) -> None:
        """Make a durable draft the current state."""
        self.state = draft.state
        for write in batch.writes:
            if write.stream == self._stream:
                self.tail.extend(write.events)
                self._logged += logged_bytes((payload for _, _, payload in write.encoded), write.events)
            else:
                self._project = fold_project(write.events, self._project)

    def _decide_with(self, tickets: Sequence[Ticket], follows: Sequence[Follow]) -> DecisionDraft:
        state, rules = self.state.copy(), SessionRules(self._rules, self.state.opened, self._project.grants)
        decided: list[Ticket] = []
        by_key: dict[str, Ticket] = {}
        for ticket in tickets:
            if ticket.key is not None and (first := by_key.setdefault(ticket.key, ticket)) is not ticket:
                # The same key twice is the same command, even if one came directly and one through the inbox at the same moment.
                ticket.decided = first.decided
                continue
            self._decide_one(state, ticket, rules)
            decided.append(ticket)
        for follow in follows:
            own = [event for ticket in decided for event in ticket.decided.own]
            command = follow(state, own) if own else None
            if command is not None:
                followup = Ticket(command)
                self._decide_one(state, followup, rules)
                decided.append(followup)
        return DecisionDraft(state, tickets, decided)

    def _decide_one(self, draft: SessionState, ticket: Ticket, rules: SessionRules) -> None:
        moment = Moment(at=self._clock.now(), seed=self._clock.entropy(16), logged=self._logged)
        ticket.decided = decide_on(draft, ticket.command, rules, moment, can_save=ticket.save is not None)

    def _concerns_project(self, draft: DecisionDraft) -> bool:
        """Tell whether a decision adds to the project, or depends on what was granted there."""
        if any(ticket.decided.for_project for ticket in draft.decided):
            return True
        grants = self._project.grants
        permits = (event for ticket in draft.decided for event in ticket.decided.own if isinstance(event, CallPermitted)) if grants else ()
        return any(name in grants for permit in permits for name in permit.answered_by)

    def _look_at_project(self, state: SessionState) -> bool:
        """Take in what others granted or revoked in the project, and return whether there was anything."""
        if state.opened is None:
            return False
        stream = project_stream(state.opened.workspace.path)
        if self._log.head(stream) == self._project.seq:
            return False
        new = [lift(entry) for entry in self._log.read(stream, self._project.seq)]
        self._project = fold_project(new, self._project)
        return True
