"""The figures of a conversation summed up from its log, so that it can be gone on with where it was left: what is kept never grows."""

import json
from dataclasses import asdict, dataclass, field
from typing import assert_never

from curtainwall.model import (
    AnyEvent,
    BudgetEvent,
    BudgetExhausted,
    BudgetKind,
    BudgetRaised,
    BudgetWarned,
    CompactionAsked,
    CompactionSet,
    CompactionSkipped,
    ContextEvent,
    ContextMeasured,
    Feed,
    HistoryCompacted,
    InstructionsPinned,
    InterruptAsked,
    MessageAccepted,
    MessageEvent,
    MessageId,
    MessageWithdrawn,
    Millis,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    PeerAnswered,
    PeerAnswerHeld,
    PeerAnswerTaken,
    PeerEvent,
    PeerMessageSent,
    SessionId,
    SessionOpened,
    SpendingCounted,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
    WorkTimed,
    session_stream,
)
from curtainwall.teams.figures import PairFigures, PairStatus
from curtainwall.teams.pairs import Pair


@dataclass(slots=True)
class Sum:
    """What a log amounts to up to a cursor; nothing in it but totals, and what is still open."""

    cursor: int = 0
    created: Millis = 0
    used: Millis = 0
    messages: int = 0
    tokens: int = 0
    dollars: float = 0.0
    is_pending: bool = False
    waiting: dict[MessageId, Millis | None] = field(default_factory=dict[MessageId, Millis | None])
    """Messages without an answer, and until when each may wait; what has begun is worked on to its end."""
    used_up: list[BudgetKind] = field(default_factory=list[BudgetKind])

    @staticmethod
    def kept(text: str) -> "Sum":
        """Return a sum that was written down; raise `ValueError` or `TypeError` where it was not one of ours."""
        made = Sum(**json.loads(text))
        made.used_up = [BudgetKind(kind) for kind in made.used_up]
        return made

    def __str__(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def read(self, feed: Feed, session: SessionId) -> None:
        """Take in what has come since."""
        for recorded in feed.read(session_stream(session), self.cursor):
            self._take(recorded.event)
            self.cursor = recorded.seq

    def figures(self, pair: Pair, session: SessionId, now: Millis, archive_after: Millis) -> PairFigures:
        """Return the figures as they are at a time."""
        created, used = (self.created, self.used) if self.cursor else (now, now)
        open_ = [message for message, until in self.waiting.items() if until is None or until > now]
        is_old = now - used > archive_after and not open_
        status: PairStatus = "archived" if is_old else "compact-pending" if self.is_pending else "active"
        short_of = tuple(sorted(self.used_up)) if open_ else ()
        return PairFigures(pair, session, created, used, self.messages, len(open_), self.tokens, self.dollars, status, short_of)

    def _take(self, event: AnyEvent) -> None:
        if isinstance(event, SessionOpened):
            self.created = self.used = event.at
        elif isinstance(event, MessageEvent | TurnEvent | PeerEvent):
            self._take_messages(event)
        elif isinstance(event, ModelEvent | BudgetEvent | ContextEvent):
            self._take_use(event)

    def _take_messages(self, event: MessageEvent | TurnEvent | PeerEvent) -> None:
        match event:
            case MessageAccepted():
                if event.peer is not None:
                    self.messages, self.used = self.messages + 1, event.at
                    self.waiting[event.message] = event.expires
            case TurnStarted():
                for message in event.messages:
                    if message in self.waiting:
                        self.waiting[message] = None
            case PeerAnswered():
                self.used = event.at
                # One that was refused as it came was never taken in.
                self.waiting.pop(event.answer.message, None)
            case MessageWithdrawn() | TurnResumed() | TurnEnded() | InterruptAsked():
                pass
            case PeerMessageSent() | PeerAnswerHeld() | PeerAnswerTaken():
                pass
            case _:
                assert_never(event)

    def _take_use(self, event: ModelEvent | BudgetEvent | ContextEvent) -> None:
        match event:
            case ModelResponded() | ModelFailed():
                self.tokens += event.usage.input_tokens + event.usage.output_tokens
                self.dollars += event.usage.dollars
            case BudgetExhausted():
                self.used_up = [*{*self.used_up, event.kind}]
            case BudgetRaised():
                self.used_up = [kind for kind in self.used_up if kind is not event.kind]
            case CompactionAsked():
                self.is_pending = True
            case CompactionSkipped() | HistoryCompacted():
                self.is_pending = False
            case ModelRequested() | BudgetWarned() | SpendingCounted() | WorkTimed():
                pass
            case InstructionsPinned() | ContextMeasured() | CompactionSet():
                pass
            case _:
                assert_never(event)
