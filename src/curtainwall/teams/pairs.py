"""A pair is an asker, a team and a thread. Its log yields the messages with their answers, and figures."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, assert_never
from urllib.parse import quote, unquote

from curtainwall.model import (
    TEAMS,
    BudgetEvent,
    BudgetExhausted,
    BudgetKind,
    BudgetRaised,
    BudgetWarned,
    Feed,
    InterruptAsked,
    MessageAccepted,
    MessageEvent,
    MessageId,
    MessageWithdrawn,
    Millis,
    PeerAnswer,
    PeerAnswered,
    PeerAnswerHeld,
    PeerAnswerTaken,
    PeerEvent,
    PeerMessageSent,
    Route,
    SessionId,
    SpendingCounted,
    TurnEnded,
    TurnEvent,
    TurnId,
    TurnResumed,
    TurnStarted,
    WorkTimed,
    record,
    session_stream,
)

_NAMED: Final = re.compile(r"([\w.-]+) → ([\w.-]+)(?: \((.+)\))?", re.ASCII | re.DOTALL)


class Pair(NamedTuple):
    """An asker, the team it asks, and a thread; the main thread has no name."""

    asker: str
    team: str
    thread: str = ""

    @property
    def route(self) -> Route:
        """Return the route of this pair. It is unique, because slashes in each part are escaped."""
        return Route(channel=TEAMS, reference="/".join(quote(part, safe="") for part in (self.asker, self.team, self.thread)))

    @staticmethod
    def at(route: Route) -> "Pair | None":
        """Return the pair of a route, or None for any other route."""
        parts = route.reference.split("/")
        if route.channel != TEAMS or len(parts) != len(Pair._fields):
            return None
        asker, team, thread = map(unquote, parts)
        pair = Pair(asker=asker, team=team, thread=thread)
        return pair if pair.route == route else None

    @staticmethod
    def named(name: str) -> "Pair | None":
        """Return the pair in the name of a session that was opened for one, or None for any other name."""
        parts = _NAMED.fullmatch(name)
        return None if parts is None else Pair(asker=parts[1], team=parts[2], thread=parts[3] or "")

    def __str__(self) -> str:
        return f"{self.asker} → {self.team}{f' ({self.thread})' if self.thread else ''}"


PairStatus = Literal["active", "compact-pending", "archived"]


class Shortage(NamedTuple):
    """The used-up budgets that stop a conversation with a team."""

    team: str
    session: SessionId
    kinds: tuple[BudgetKind, ...]

    def __str__(self) -> str:
        return f"team {self.team} waits, {shortage_text(self.session, self.kinds)}"


@dataclass(slots=True)
class TeamExchange:
    """A message to a team, its state and its answer."""

    message: MessageId
    by: str
    text: str
    at: Millis
    state: Literal["queued", "working", "held", "expired", "answered"] = "queued"
    answer: PeerAnswer | None = None
    answered: Millis | None = None
    turn: TurnId | None = None
    """The turn that took it up."""
    exhausted: tuple[BudgetKind, ...] = ()
    """The used-up budgets that stop the work on it."""
    waits_for_human: bool = False
    """A human has to answer an ask before the work on it goes on."""
    is_worked_on: bool = True
    """Some process works for the team."""
    further: tuple[Shortage, ...] = ()
    """The shortages of the teams that this one has asked in turn and waits for."""

    @property
    def status(self) -> str:
        """Return its state for reports: `working` only if some process works on it now."""
        if self.state != "working":
            return self.state
        return "waiting" if self.waits_for_human else "working" if self.is_worked_on else "begun"

    @property
    def is_open(self) -> bool:
        """Tell whether an answer may still come."""
        return self.state not in ("expired", "answered")


@record
class PairFigures:
    """Figures of a pair's conversation."""

    pair: Pair
    session: SessionId
    created: Millis
    used: Millis
    messages: int
    open: int
    tokens: int
    dollars: float
    status: PairStatus
    exhausted: tuple[BudgetKind, ...] = ()
    """The budgets that are used up while a message is open: it waits until a human allows more."""


def shortage_text(session: SessionId, kinds: Sequence[str]) -> str:
    """Return which budgets of a conversation are used up, and how a human allows more."""
    commands = " and ".join(f"`curtainwall sessions budget {session} {kind} AMOUNT`" for kind in kinds)
    return f"its budget of {' and '.join(kinds)} is used up: {commands} {'allow' if len(kinds) > 1 else 'allows'} more"


def exchanges(feed: Feed, session: SessionId, now: Millis) -> list[TeamExchange]:
    """Return every message of the pair with its answer, oldest first.

    A notice whose time is over is `expired`, even before somebody works for the team and records that.
    """
    by_message: dict[MessageId, TeamExchange] = {}
    deadlines: dict[MessageId, Millis] = {}
    used_up = set[BudgetKind]()
    for recorded in feed.read(session_stream(session)):
        event = recorded.event
        if not isinstance(event, MessageEvent | TurnEvent | PeerEvent | BudgetEvent):
            continue
        match event:
            case MessageAccepted():
                if event.peer is not None:
                    by_message[event.message] = TeamExchange(event.message, event.peer.team, event.text, event.at)
                    if event.expires is not None:
                        deadlines[event.message] = event.expires
            case TurnStarted():
                for message in event.messages:
                    if message in by_message:
                        by_message[message].state, by_message[message].turn = "working", event.turn
            case PeerAnswerHeld():
                by_message[event.answer.message].state = "held"
            case PeerAnswered():
                message, answer = event.answer.message, event.answer
                exchange = by_message.setdefault(message, TeamExchange(message, event.peer.team, "", event.at))
                exchange.state, exchange.answer, exchange.answered = "answered", answer, event.at
            case BudgetExhausted():
                used_up.add(event.kind)
            case BudgetRaised():
                used_up.discard(event.kind)
            case MessageWithdrawn() | TurnResumed() | TurnEnded() | InterruptAsked() | PeerMessageSent() | PeerAnswerTaken():
                pass
            case BudgetWarned() | SpendingCounted() | WorkTimed():
                pass
            case _:
                assert_never(event)
    for exchange in by_message.values():
        if exchange.state == "queued" and deadlines.get(exchange.message, now + 1) <= now:
            exchange.state = "expired"
        elif exchange.state == "working":
            exchange.exhausted = tuple(sorted(used_up))
    return list(by_message.values())
