"""What one session knows, and what it makes of commands: nothing here waits, and nothing is written."""

from collections.abc import Callable, Generator, Sequence
from functools import cache, partial
from itertools import chain

from curtainwall.model import (
    AnyCommand,
    AnyEvent,
    Batch,
    CallPermitted,
    Clock,
    CommandRefused,
    Consumed,
    GrantGiven,
    GrantScope,
    Log,
    Moment,
    StreamId,
    Write,
    project_stream,
)
from curtainwall.runtime.sessions.feed import Tail
from curtainwall.runtime.sessions.tickets import Ticket
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
    posts_of,
    turned_away,
)
from curtainwall.session import apply as apply_event

_PAGE = 500

RulesNow = Callable[[], Rules]
"""Gives the rules in force; a reload of the policy shows at the next command."""

Follow = Callable[[SessionState, Sequence[AnyEvent]], AnyCommand | None]
"""Looks at what was just decided, and where it leads; names a command that is decided along with it, in the same commit."""


class Deciding:
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

    def decide(self, tickets: Sequence[Ticket], follows: Sequence[Follow]) -> tuple[SessionState, Batch]:
        """Decide commands in their order, and return where that leads with what has to be written for it."""
        draft, batch = self._decide_with(cache(self._rules_now), tickets, follows)
        # Before anyone is asked, and before something is added to the project, see what others granted there meanwhile.
        if (draft.approvals is not self.state.approvals or len(batch.writes) > 1) and self._look_at_project(draft):
            draft, batch = self._decide_with(cache(self._rules_now), tickets, follows)
        return draft, batch

    def take_in(self, draft: SessionState, batch: Batch) -> None:
        """Let the state be what is durable by now."""
        self.state = draft
        for write in batch.writes:
            if write.stream == self._stream:
                self.tail.extend(write.events)
                for (_, _, payload), event in zip(write.encoded, write.events, strict=True):
                    self._logged += _weight(payload, event)
            else:
                self._project = fold_project(write.events, self._project)

    def _rules_now(self) -> Rules:
        return self._rules().of_session(self.state.opened).with_project_grants(self._project.grants)

    def _decide_with(self, rules: RulesNow, tickets: Sequence[Ticket], follows: Sequence[Follow]) -> tuple[SessionState, Batch]:
        draft = self.state.copy()
        own: list[AnyEvent] = []
        for_project: list[AnyEvent] = []
        consumed: list[Consumed] = []
        by_key: dict[str, Ticket] = {}
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
                consumed.append(Consumed(self._stream, ticket.key, ticket.outcome(self.tail.seq + len(own))))
        for command in _following(follows, draft, own):
            more = Ticket(command)
            self._decide_one(draft, more, rules)
            for event in more.events:
                apply_event(draft, event)
                own.append(event)
        writes = [Write(self._stream, self.tail.seq, tuple(own))] if own or consumed else []
        if draft.opened is not None and (for_project or _used_project(own, self._project)):
            # The decision stands on the project's grants: if one was revoked meanwhile, it is made again.
            writes.append(Write(project_stream(draft.workspace.path), self._project.seq, tuple(for_project)))
        refused = (turned_away(ticket.command, str(ticket.refusal)) for ticket in tickets if ticket.refusal is not None)
        return draft, Batch(tuple(writes), tuple(consumed), (*posts_of(own), *chain.from_iterable(refused)))

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
