"""The board: every open ask routed to a channel, shown as cards. It reports when and by whom they are settled, and takes answers."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol

from curtainwall.channels.asks.answerers import Key
from curtainwall.channels.asks.answers import answer_each
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
    record,
)

Status = Literal["open", "granted", "denied", "expired", "withdrawn"]

ReasonOf = Callable[[RuleId], str]
"""Returns the purpose of a rule."""

# Every change in a busy installation wakes the board, so it refreshes at most this often. No change is lost in between.
_REST = 0.02

# With very many asks a refresh takes longer; this leaves time for other work in between.
_REST_TO_LOOK = 4


WhoMay = Callable[[], Callable[[Key], str]]
"""Reads who may answer asks now and returns a function that describes it for each ask; "" if there is nothing to mention."""


class AskDesk(Protocol):
    """The part of the desk that a board needs."""

    async def send(self, session: SessionId, command: AnswerApproval) -> int:
        """Submit an answer for decision; raise its refusal."""
        ...

    def view(self, session: SessionId) -> SessionView:
        """Return the current state of the session; raise `NotFound`."""
        ...


@record
class AskingRule:
    """A rule that asked, and its purpose."""

    rule: RuleId
    reason: str


@record
class AskSettlement:
    """How an ask ended, by whom, when and why."""

    how: Status
    by: str
    at: Millis
    reason: str


@record
class Card:
    """One ask, or identical asks of repeated firings, as a channel shows them. Only `lines` escapes what the agent wrote.

    `joined` holds every ask that an answer to this card covers, the card's own first; `series` is the job that fired them.
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
    """Who may answer, in words; empty if it is only the person who runs this installation."""

    @property
    def key(self) -> Key:
        """The card's identity."""
        return self.session, self.approval

    def shows(self, approval: str, session: SessionId | None = None) -> bool:
        """Tell whether the card shows the ask with this id, in this session if one is given."""
        return any(id_ == approval and session in (None, owner) for owner, id_ in self.joined)

    @property
    def newest(self) -> ApprovalId:
        """The id to answer this card by: an answer covers the named ask and the identical ones before it, none after it."""
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
        """The card for a person: what is requested and why, both forms of the arguments, and what would change."""
        return card_lines(self.ask)

    @property
    def tag(self) -> str:
        """Where the ask comes from, on a separate line before the card."""
        origin = f"{self.origin}, " if self.origin else ""
        more = f", asked {len(self.joined)} times" if len(self.joined) > 1 else ""
        return plain_line(f"[{origin}session {self.session} `{self.name}`{more}]")


@record
class AnswerResult:
    """The reply to a person who answered, and whether the answer counted."""

    text: str
    counted: bool


class Board:
    """The asks of one channel, or of one place on it; of the whole installation if neither is given."""

    def __init__(
        self, desk: AskDesk, feed: Feed, index: Index, reason_of: ReasonOf, at: ShownAt | None = None, who_may: WhoMay | None = None
    ) -> None:
        self._desk = desk
        self._feed = feed
        self._index = index
        self._reason_of = reason_of
        self._at = at
        self._who_may = who_may
        self._candidates: dict[Key, _Candidate] = {}

    def cards(self) -> tuple[Card, ...]:
        """Return all open cards, oldest first."""
        rows = self._index.approvals(ApprovalQuery(shown_at=self._at, limit=None, brief=True))
        views: dict[SessionId, SessionView | None] = {}
        candidates = {
            (row.session, row.approval): candidate for row in reversed(rows) if (candidate := self._candidate_for(row, views)) is not None
        }
        self._candidates = candidates
        cards = _join(candidates.values())
        if not candidates or self._who_may is None:
            return tuple(cards)
        # Places and operators change while an ask is open, so this is not part of the cached card.
        who_may = self._who_may()
        return tuple(replace(card, may_answer=words) if (words := who_may(card.key)) else card for card in cards)

    def cards_after(self, approval: str, session: SessionId | None = None) -> tuple[Card, ...]:
        """Return the open cards after an ask, which may have been settled since; raise `NotFound` if the board never had it."""
        cards = self.cards()
        index = next((index for index, card in enumerate(cards) if card.shows(approval, session)), None)
        if index is not None:
            return cards[index + 1 :]
        query = ApprovalQuery(approval=ApprovalId(approval), session=session, shown_at=self._at, open_only=False, limit=1, brief=True)
        for row in self._index.approvals(query):
            behind = (row.asked, row.session, row.approval)
            return tuple(card for card in cards if (card.ask.asked, card.session, card.approval) > behind)
        raise NotFound(f"there is no ask `{approval}` here")

    def find(self, approval: str, session: SessionId | None = None) -> Card:
        """Return the open card that shows an ask; raise `AlreadyAnswered` with how it ended, or `NotFound` if none or several match."""
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
        """Yield every open card that differs from `known`, then each card that is new, changed or settled.

        The end of every card in `known` is reported, even if it was settled before the first refresh.
        """
        reported = {card.key: card for card in known}
        async for _ in self._feed.changes():
            started = time.monotonic()
            current = {card.key: card for card in self.cards()}
            took = time.monotonic() - started
            for key in [key for key in reported if key not in current]:
                yield self._settled_card(reported.pop(key))
            for key, card in current.items():
                if reported.get(key) != card:
                    reported[key] = card
                    yield card
            await asyncio.sleep(max(_REST, _REST_TO_LOOK * took))

    async def answer(self, card: Card, *, granted: bool, by: Who, scope: GrantScope = GrantScope.ONCE, reason: str = "") -> AnswerResult:
        """Answer every ask of a card and return the reply; for a late answer, that names who settled the ask, and when."""
        return await self.answer_all(
            card.joined, AnswerApproval(by=by, approval=card.approval, granted=granted, scope=scope, reason=reason)
        )

    async def answer_all(self, asks: Sequence[Key], command: AnswerApproval) -> AnswerResult:
        """Give one answer to several asks; the reply says which of them it settled, and why not the others.

        If nothing was settled because of a temporary error, that error is raised: the same answer can be given again later.
        """
        faults = await answer_each(self._desk.send, asks, command)
        refused = {key: self._how_settled(key) if isinstance(error, NotFound) else str(error) for key, error in faults.items()}
        settled = [key for key in asks if key not in refused]
        if not settled:
            temporary = (error for error in faults.values() if not isinstance(error, CommandRefused | Undecided))
            if (error := next(temporary, None)) is not None:
                raise error
            return AnswerResult(refused[asks[0]] if len(set(refused.values())) == 1 else _refusal_words(refused), counted=False)
        how_far = "once" if command.scope is GrantScope.ONCE else f"for the {command.scope}"
        words = f"{f'approved {how_far}' if command.granted else 'denied'}: {_ask_names(settled) if refused else settled[0][1]}"
        if len(asks) > 1:
            words += f", {len(settled)} of {len(asks)} identical asks"
        return AnswerResult(f"{words}; {_refusal_words(refused)}" if refused else words, counted=True)

    def _candidate_for(self, row: ApprovalRow, views: dict[SessionId, SessionView | None]) -> "_Candidate | None":
        """Return the card of a row. It shows what was asked and never changes, so it is made once."""
        if (before := self._candidates.get((row.session, row.approval))) is not None:
            return before
        if row.session not in views:
            try:
                views[row.session] = self._desk.view(row.session)
            except NotFound:
                views[row.session] = None
        view = views[row.session]
        ask = next((ask for ask in view.pending if ask.approval == row.approval), None) if view is not None else None
        if view is None or ask is None:
            # Settled since the row was read: the next refresh will not list it.
            return None
        card = card_of(ask, view, self._index.routes_to(row.session), self._reason_of)
        return _Candidate(card, _likeness(card))

    def _settled_card(self, card: Card) -> Card:
        rows = self._index.approvals(ApprovalQuery(session=card.session, approval=card.approval, open_only=False))
        row = rows[0] if rows else None
        if row is None or row.settled is None:
            gone = "its session is gone" if row is None else "it is no longer shown here"
            return replace(card, settled=AskSettlement("withdrawn", "", card.ask.asked, gone))
        return replace(card, settled=AskSettlement(row.status, row.settled_by, row.settled, row.reason))

    def _how_settled(self, key: Key) -> str:
        """Return how an ask ended that its session no longer remembers."""
        session, approval = key
        rows = self._index.approvals(ApprovalQuery(session=session, approval=approval, open_only=False))
        return settled_words(rows[0]) if rows else f"there is no ask `{approval}`; its session is gone"


def settled_words(row: ApprovalRow) -> str:
    """Return how an ask was settled, for a person who answers too late."""
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
    """Return the card of one open ask, not yet joined with others."""
    rules = tuple(AskingRule(rule, reason_of(rule)) for rule in ask.because)
    joined = ((view.session, ask.approval),)
    return Card(ask.approval, view.session, view.name, origin_of(places), ask, rules, view.labels, joined, series_at(places))


def join_cards(cards: Iterable[Card]) -> list[Card]:
    """Return the cards, with identical asks of repeated firings joined under the first one."""
    return _join(_Candidate(card, _likeness(card)) for card in cards)


@record
class _Candidate:
    """A card of one ask, and the key that identical asks share."""

    card: Card
    likeness: object


def _join(candidates: Iterable[_Candidate]) -> list[Card]:
    alike: dict[object, list[Card]] = {}
    for candidate in candidates:
        alike.setdefault(candidate.likeness, []).append(candidate.card)
    return [replace(first, joined=(first.key, *(card.key for card in rest))) if rest else first for first, *rest in alike.values()]


def _ask_names(asks: Iterable[Key]) -> str:
    return ", ".join(f"{approval} in session {session}" for session, approval in asks)


def _refusal_words(refused: Mapping[Key, str]) -> str:
    """Return which asks were not settled and why, grouped by reason."""
    by_reason: dict[str, list[Key]] = {}
    for key, reason in refused.items():
        by_reason.setdefault(reason, []).append(key)
    return "; ".join(f"not settled by this: {_ask_names(keys)}: {reason}" for reason, keys in by_reason.items())


def _likeness(card: Card) -> object:
    """Return what makes two asks the same to a human: the job, the exact subject as written, the text shown, and the labels behind it."""
    if card.series is None:
        return card.key
    subject = card.ask.subject
    written = json.dumps(dict(subject.raw), sort_keys=True)
    # A label's source is a call of one session, so it differs; the label itself counts below. No agent-written line starts with "label ".
    shown = tuple(line for line in card.shown.splitlines() if not line.startswith("label "))
    labels = frozenset(source.label for source in card.labels)
    return card.series, subject.tool, subject.digest, written, card.ask.because, shown, labels
