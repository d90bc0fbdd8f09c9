"""Totals of conversations, stored as marks beside the log and continued from there, so that no log is read twice."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Final, NamedTuple, assert_never

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
    Marks,
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
from curtainwall.teams.pairs import Pair, PairFigures, PairStatus


@dataclass(slots=True)
class ConversationTotals:
    """Totals of a log up to a cursor, and the messages that are still open."""

    cursor: int = 0
    created: Millis = 0
    used: Millis = 0
    messages: int = 0
    tokens: int = 0
    dollars: float = 0.0
    is_pending: bool = False
    waiting: dict[MessageId, Millis | None] = field(default_factory=dict[MessageId, Millis | None])
    """Messages without an answer, and until when each may wait; None once the work on it has begun."""
    used_up: list[BudgetKind] = field(default_factory=list[BudgetKind])

    @staticmethod
    def kept(text: str) -> "ConversationTotals":
        """Parse stored totals; raise `ValueError` or `TypeError` if they are not ours."""
        totals = ConversationTotals(**json.loads(text))
        totals.used_up = [BudgetKind(kind) for kind in totals.used_up]
        return totals

    def __str__(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def read(self, feed: Feed, session: SessionId) -> None:
        """Add the events since the cursor."""
        for recorded in feed.read(session_stream(session), self.cursor):
            self._take(recorded.event)
            self.cursor = recorded.seq

    def figures(self, pair: Pair, session: SessionId, now: Millis, archive_after: Millis, *, is_put_away: bool = False) -> PairFigures:
        """Return the figures as they are at a time."""
        created, used = (self.created, self.used) if self.cursor else (now, now)
        open_messages = [message for message, until in self.waiting.items() if until is None or until > now]
        is_old = (is_put_away or now - used > archive_after) and not open_messages
        status: PairStatus = "archived" if is_old else "compact-pending" if self.is_pending else "active"
        short_of = tuple(sorted(self.used_up)) if open_messages else ()
        return PairFigures(pair, session, created, used, self.messages, len(open_messages), self.tokens, self.dollars, status, short_of)

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
                # A message that was refused on arrival was never added.
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


_CHANNEL: Final = "archived teams"
_TOTALS: Final = "sums of teams"
_MUCH: Final = 100
"""How many new entries must be read before the totals are stored again."""


_PUT_AWAY: Final = "teams put away"


class ArchivedLog(NamedTuple):
    """A log that was read up to `head`, in which nothing waits; it has no figures if no pair leads to it any more."""

    session: SessionId
    changed: Millis
    head: int
    figures: PairFigures | None


class Archive:
    """The marks of conversations. They are only a cache: if one is missing, or its log has grown since, the log is read."""

    def __init__(self, marks: Marks, feed: Feed) -> None:
        self._marks = marks
        self._feed = feed

    async def put_away(self, session: SessionId) -> None:
        """Count a conversation as archived until its log grows again, however recently it was used."""
        await self._marks.set(_PUT_AWAY, {session: str(self._feed.head(session_stream(session)))})

    def is_put_away(self, session: SessionId) -> bool:
        """Tell whether somebody has put a conversation away and nothing has happened in it since."""
        mark = self._marks.get(_PUT_AWAY, session)
        return mark is not None and mark == str(self._feed.head(session_stream(session)))

    def at_rest(self) -> Mapping[str, Millis]:
        """Return the sessions in which nothing waited when they were read, each with its last change at that time."""
        return {session: json.loads(mark)[0] for session, mark in self._marks.all(_CHANNEL).items()}

    def figures(self, pair: Pair, session: SessionId) -> PairFigures | None:
        """Return the figures of a conversation, if they are stored and its log has not grown since."""
        mark = self._marks.get(_CHANNEL, session)
        if mark is None:
            return None
        _, head, *values = json.loads(mark)
        if not values or head != self._feed.head(session_stream(session)):
            return None
        created, used, messages, tokens, dollars = values
        return PairFigures(pair, session, created, used, messages, 0, tokens, dollars, "archived")

    def sum(self, session: SessionId) -> ConversationTotals | None:
        """Return the stored totals of a log."""
        mark = self._marks.get(_TOTALS, session)
        with suppress(ValueError, TypeError):
            return None if mark is None else ConversationTotals.kept(mark)
        return None

    async def keep_sums(self, sums: Mapping[SessionId, ConversationTotals]) -> None:
        """Store the totals of these conversations, if enough was read since; forget all others."""
        stored = self._marks.all(_TOTALS)
        gone: dict[str, str | None] = {session: None for session in stored if session not in sums}
        grown = {session: str(it) for session, it in sums.items() if not 0 <= it.cursor - _cursor(stored.get(session)) < _MUCH}
        await self._marks.set(_TOTALS, {**gone, **grown})

    async def keep(self, rests: Sequence[ArchivedLog]) -> None:
        """Store these logs as read."""
        await self._marks.set(_CHANNEL, {rest.session: _mark(rest) for rest in rests})

    async def forget_all_but(self, archived: Collection[str]) -> None:
        """Forget the sessions that are no longer archived, or are gone."""
        await self._marks.set(_CHANNEL, {session: None for session in self._marks.all(_CHANNEL) if session not in archived})


def _cursor(mark: str | None) -> int:
    with suppress(ValueError, TypeError):
        return 0 if mark is None else ConversationTotals.kept(mark).cursor
    return 0


def _mark(rest: ArchivedLog) -> str:
    figures = rest.figures
    return json.dumps(
        [
            rest.changed,
            rest.head,
            *(() if figures is None else (figures.created, figures.used, figures.messages, figures.tokens, figures.dollars)),
        ]
    )
