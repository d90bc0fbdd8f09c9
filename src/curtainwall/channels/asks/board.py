"""The board: every open ask that is routed to a channel, as cards; it tells when they are settled and by whom, and takes answers."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from curtainwall.channels.asks.answers import Key, answer_each
from curtainwall.channels.asks.cards import CardLine, card_lines
from curtainwall.channels.places import origin_of
from curtainwall.channels.plain import plain_line
from curtainwall.channels.series import series_at
from curtainwall.host.user import clock_time
from curtainwall.model import (
    AlreadyAnswered,
    AnswerApproval,
    ApprovalId,
    ApprovalQuery,
    ApprovalRow,
    CommandRefused,
    Feed,
    GrantScope,
    Index,
    LabelSource,
    Millis,
    NotFound,
    PendingAsk,
    Route,
    RuleId,
    SessionId,
    SessionView,
    ShownAt,
    Undecided,
    Who,
)

Status = Literal["open", "granted", "denied", "expired", "withdrawn"]

ReasonOf = Callable[[RuleId], str]
"""Says what a rule is there for."""

# Everything that a busy house does wakes the board; it looks at most so often, and nothing that happened meanwhile is missed.
_REST = 0.02

# With very many asks a look takes longer, and others have to be served in between.
_REST_TO_LOOK = 4


WhoMay = Callable[[], Callable[[Key], str]]
"""Looks at who may answer asks now, and returns what tells it of each in words; nothing where nobody needs to be told."""


class AskDesk(Protocol):
    """The part of the desk that a board needs."""

    async def send(self, session: SessionId, command: AnswerApproval) -> int:
        """Have an answer decided; raise its refusal."""
        ...

    def view(self, session: SessionId) -> SessionView:
        """Return the session as it is now; raise `NotFound`."""
        ...


@dataclass(frozen=True, slots=True)
class AskingRule:
    """A rule that asked, and what it is there for."""

    rule: RuleId
    reason: str


@dataclass(frozen=True, slots=True)
class AskSettlement:
    """How an ask ended, by whom, when and why."""

    how: Status
    by: str
    at: Millis
    reason: str


@dataclass(frozen=True, slots=True)
class Card:
    """One ask, or identical asks of repeated firings, as a channel shows them; what the agent wrote in it is inert only in `lines`.

    `joined` holds every ask that an answer to this card answers, the card's own first; `series` is the job that they are firings of.
    """

    approval: ApprovalId
    session: SessionId
    name: str
    origin: str
    ask: PendingAsk
    rules: tuple[AskingRule, ...]
    labels: tuple[LabelSource, ...]
    joined: tuple[Key, ...]
    series: tuple[str, str] | None = None
    settled: AskSettlement | None = None
    may_answer: str = ""
    """Who may answer, in words, where that is not simply whoever runs this house."""

    @property
    def key(self) -> Key:
        """What names the card."""
        return self.session, self.approval

    def shows(self, approval: str, session: SessionId | None = None) -> bool:
        """Tell whether an ask of this name, in this session where one is given, is on the card."""
        return any(name == approval and session in (None, of) for of, name in self.joined)

    @property
    def newest(self) -> ApprovalId:
        """The id to answer this card by: an answer is for the ask that it names and the identical ones before it, and none behind it."""
        return self.joined[-1][1]

    @property
    def tool(self) -> str:
        """The tool that is asked for."""
        return self.ask.subject.tool

    @property
    def shown(self) -> str:
        """The exact text that an answer is about."""
        return self.ask.shown

    @property
    def lines(self) -> tuple[CardLine, ...]:
        """The card for a person: what is wanted and why, both forms of the arguments, and what would change."""
        return card_lines(self.ask)

    @property
    def tag(self) -> str:
        """Where the ask comes from, in a line of its own before the card."""
        told = f"{self.origin}, " if self.origin else ""
        more = f", asked {len(self.joined)} times" if len(self.joined) > 1 else ""
        return plain_line(f"[{told}session {self.session} `{self.name}`{more}]")


@dataclass(frozen=True, slots=True)
class AnswerResult:
    """What to say to somebody who answered, and whether the answer counted."""

    text: str
    counted: bool


class Board:
    """The asks of one channel, or of one place on it; without either, of the whole house."""

    def __init__(
        self, desk: AskDesk, feed: Feed, index: Index, reason_of: ReasonOf, at: ShownAt | None = None, who_may: WhoMay | None = None
    ) -> None:
        self._desk = desk
        self._feed = feed
        self._index = index
        self._reason_of = reason_of
        self._at = at
        self._who_may = who_may
        self._made: dict[Key, _Candidate] = {}

    def cards(self) -> tuple[Card, ...]:
        """Return the open cards, all of them, oldest first."""
        rows = self._index.approvals(ApprovalQuery(shown_at=self._at, limit=None, brief=True))
        views: dict[SessionId, SessionView | None] = {}
        made = {(row.session, row.approval): it for row in reversed(rows) if (it := self._make(row, views)) is not None}
        self._made = made
        cards = _joined(made.values())
        if not made or self._who_may is None:
            return tuple(cards)
        # Places and operators change while an ask is open, so this is no part of what is made once.
        who_may = self._who_may()
        return tuple(replace(card, may_answer=words) if (words := who_may(card.key)) else card for card in cards)

    def cards_after(self, approval: str, session: SessionId | None = None) -> tuple[Card, ...]:
        """Return the open cards behind an ask, which may have been settled meanwhile; raise `NotFound` if it was never here."""
        cards = self.cards()
        place = next((place for place, card in enumerate(cards) if card.shows(approval, session)), None)
        if place is not None:
            return cards[place + 1 :]
        query = ApprovalQuery(approval=ApprovalId(approval), session=session, shown_at=self._at, open_only=False, limit=1, brief=True)
        for row in self._index.approvals(query):
            behind = (row.asked, row.session, row.approval)
            return tuple(card for card in cards if (card.ask.asked, card.session, card.approval) > behind)
        raise NotFound(f"there is no ask `{approval}` here")

    def find(self, approval: str, session: SessionId | None = None) -> Card:
        """Return the open card that shows an ask; raise `AlreadyAnswered` with how it ended, `NotFound` where none or two are meant."""
        here = [card for card in self.cards() if card.shows(approval, session)]
        if len(here) > 1:
            sessions = ", ".join(card.session for card in here)
            raise NotFound(f"`{approval}` is an ask in {len(here)} sessions: answer it in one of {sessions}")
        if here:
            return here[0]
        query = ApprovalQuery(approval=ApprovalId(approval), session=session, shown_at=self._at, open_only=False)
        rows = self._index.approvals(query)
        if not rows:
            raise NotFound(f"there is no ask `{approval}` here")
        raise AlreadyAnswered(settled_words(rows[0]))

    async def follow(self, known: Iterable[Card] = ()) -> AsyncIterator[Card]:
        """Yield every open card that is not known as it is, and from then on those that are new, have changed, or are settled.

        Of a card that was open when it became known the end is told, also where it came before the first look.
        """
        told = {card.key: card for card in known}
        async for _ in self._feed.changes():
            began = time.monotonic()
            now = {card.key: card for card in self.cards()}
            took = time.monotonic() - began
            for key in [key for key in told if key not in now]:
                yield self._ended(told.pop(key))
            for key, card in now.items():
                if told.get(key) != card:
                    told[key] = card
                    yield card
            await asyncio.sleep(max(_REST, _REST_TO_LOOK * took))

    async def answer(self, card: Card, *, granted: bool, by: Who, scope: GrantScope = GrantScope.ONCE, reason: str = "") -> AnswerResult:
        """Answer every ask of a card and return what to say; whoever is late hears who settled it, and when."""
        return await self.answer_all(
            card.joined, AnswerApproval(by=by, approval=card.approval, granted=granted, scope=scope, reason=reason)
        )

    async def answer_all(self, asks: Sequence[Key], command: AnswerApproval) -> AnswerResult:
        """Give one answer to several asks and return what to say: which of them it settled, and why it did not settle the others.

        A fault is raised where nothing was settled: whatever passes, the same answer can be given again then.
        """
        faults = await answer_each(self._desk.send, asks, command)
        refused = {key: self._late(key) if isinstance(why, NotFound) else str(why) for key, why in faults.items()}
        settled = [key for key in asks if key not in refused]
        if not settled:
            passing = (fault for fault in faults.values() if not isinstance(fault, CommandRefused | Undecided))
            if (fault := next(passing, None)) is not None:
                raise fault
            return AnswerResult(refused[asks[0]] if len(set(refused.values())) == 1 else _each(refused), counted=False)
        how_far = "once" if command.scope is GrantScope.ONCE else f"for the {command.scope}"
        words = f"{f'approved {how_far}' if command.granted else 'denied'}: {_named(settled) if refused else settled[0][1]}"
        if len(asks) > 1:
            words += f", {len(settled)} of {len(asks)} identical asks"
        return AnswerResult(f"{words}; {_each(refused)}" if refused else words, counted=True)

    def _make(self, row: ApprovalRow, views: dict[SessionId, SessionView | None]) -> "_Candidate | None":
        """Return the card of a row; what it shows stays as it was asked, so it is made once."""
        if (before := self._made.get((row.session, row.approval))) is not None:
            return before
        if row.session not in views:
            try:
                views[row.session] = self._desk.view(row.session)
            except NotFound:
                views[row.session] = None
        view = views[row.session]
        ask = next((it for it in view.pending if it.approval == row.approval), None) if view is not None else None
        if view is None or ask is None:
            # Settled since the row was read: the next look will not find it.
            return None
        card = card_of(ask, view, self._index.routes_to(row.session), self._reason_of)
        return _Candidate(card, _likeness(card))

    def _ended(self, card: Card) -> Card:
        rows = self._index.approvals(ApprovalQuery(session=card.session, approval=card.approval, open_only=False))
        row = rows[0] if rows else None
        if row is None or row.settled is None:
            gone = "its session is gone" if row is None else "it is no longer shown here"
            return replace(card, settled=AskSettlement("withdrawn", "", card.ask.asked, gone))
        return replace(card, settled=AskSettlement(row.status, row.settled_by, row.settled, row.reason))

    def _late(self, key: Key) -> str:
        """Return how an ask ended that its session no longer remembers."""
        session, approval = key
        rows = self._index.approvals(ApprovalQuery(session=session, approval=approval, open_only=False))
        return settled_words(rows[0]) if rows else f"there is no ask `{approval}`; its session is gone"


def settled_words(row: ApprovalRow) -> str:
    """Return how an ask was settled, for somebody who comes late."""
    if row.settled is None:
        return f"approval `{row.approval}` is open"
    at = clock_time(row.settled)
    match row.status:
        case "granted" | "denied":
            return f"already answered by `{row.settled_by}`: {row.status} at {at}"
        case "expired":
            return f"too late: approval `{row.approval}` expired at {at}"
        case _:
            return f"too late: approval `{row.approval}` was withdrawn at {at} ({row.reason})"


def card_of(ask: PendingAsk, view: SessionView, places: Sequence[Route], reason_of: ReasonOf) -> Card:
    """Return the card of one open ask, joined with no other yet."""
    rules = tuple(AskingRule(rule, reason_of(rule)) for rule in ask.because)
    joined = ((view.session, ask.approval),)
    return Card(ask.approval, view.session, view.name, origin_of(places), ask, rules, view.labels, joined, series_at(places))


def join_cards(cards: Iterable[Card]) -> list[Card]:
    """Return the cards with identical asks of repeated firings under the first of them."""
    return _joined(_Candidate(card, _likeness(card)) for card in cards)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A card of one ask, and what it has in common with those that are identical."""

    card: Card
    likeness: object


def _joined(made: Iterable[_Candidate]) -> list[Card]:
    alike: dict[object, list[Card]] = {}
    for it in made:
        alike.setdefault(it.likeness, []).append(it.card)
    return [replace(first, joined=(first.key, *(card.key for card in rest))) if rest else first for first, *rest in alike.values()]


def _named(asks: Iterable[Key]) -> str:
    return ", ".join(f"{approval} in session {session}" for session, approval in asks)


def _each(refused: Mapping[Key, str]) -> str:
    """Return which asks were not settled, each with why, those with the same reason together."""
    alike: dict[str, list[Key]] = {}
    for key, why in refused.items():
        alike.setdefault(why, []).append(key)
    return "; ".join(f"not settled by this: {_named(keys)}: {why}" for why, keys in alike.items())


def _likeness(card: Card) -> object:
    """Return what makes two asks the same to a human: the job, the exact subject as written, the text shown, and the labels behind it."""
    if card.series is None:
        return card.key
    subject = card.ask.subject
    written = json.dumps(dict(subject.raw), sort_keys=True)
    # What set a label is a call of one session alone; that there is one counts below. No line of the agent's begins like that.
    shown = tuple(line for line in card.shown.splitlines() if not line.startswith("label "))
    labels = frozenset(source.label for source in card.labels)
    return card.series, subject.tool, subject.digest, written, card.ask.because, shown, labels


SEES_ALL: Final = "web"
"""The channel whose operators see every ask of the house; on any other, those that are shown there."""

_MOST_NAMED: Final = 5

Operators = Mapping[str, Collection[str]]
"""The operators of each channel that is served, by the channel's name."""

MayAnswer = Mapping[str, tuple[str, ...]]
"""Who may answer one ask besides whoever runs this house, by the channel."""


def answerers(index: Index, operators: Operators) -> Callable[[Key], MayAnswer]:
    """Return what tells who may answer an open ask, as it is shown now."""
    shown = {
        channel: {row.session for row in index.approvals(ApprovalQuery(shown_at=ShownAt(channel), limit=None, brief=True))}
        for channel in operators
        if channel != SEES_ALL
    }

    def of(ask: Key) -> MayAnswer:
        seeing = {channel: people for channel, people in operators.items() if channel == SEES_ALL or ask[0] in shown[channel]}
        return {channel: tuple(sorted(people)) for channel, people in sorted(seeing.items()) if people}

    return of


def answerer_words(found: MayAnswer, own: str, here: str = "") -> str:
    """Return who may answer, in words; nothing where that is whoever runs this house alone, who is called `own` wherever they are.

    On the channel `here` its one operator is not told either that they may, where nobody else may.
    """
    others = {channel: people for channel, people in found.items() if not {*people} <= {own}}
    if not others or (others.keys() == {here} and len(others[here]) == 1):
        return ""
    return (
        f"may be answered {', '.join(f'on {channel} by {_people_words(people)}' for channel, people in found.items())}, and at its machine"
    )


def _people_words(people: tuple[str, ...]) -> str:
    told = [plain_line(name, 80) for name in people[:_MOST_NAMED]]
    if len(people) > _MOST_NAMED:
        return f"{', '.join(told)} and {len(people) - _MOST_NAMED} more"
    return " or ".join(filter(None, (", ".join(told[:-1]), told[-1])))
