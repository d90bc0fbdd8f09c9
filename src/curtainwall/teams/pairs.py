"""A pair: who asks which team, in which thread; and what its log tells: the messages with their answers, and figures."""

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
    session_stream,
)

_NAMED: Final = re.compile(r"([\w.-]+) → ([\w.-]+)(?: \((.+)\))?", re.ASCII | re.DOTALL)


class Pair(NamedTuple):
    """An ordered pair of teams and a thread; the main one has no name."""

    asker: str
    team: str
    thread: str = ""

    @property
    def route(self) -> Route:
        """Return the one place of this pair; no two pairs share one, because each part is written without slashes."""
        return Route(channel=TEAMS, reference="/".join(quote(part, safe="") for part in (self.asker, self.team, self.thread)))

    @staticmethod
    def at(route: Route) -> "Pair | None":
        """Return the pair whose place this is, or None for any other place."""
        parts = route.reference.split("/")
        if route.channel != TEAMS or len(parts) != len(Pair._fields):
            return None
        asker, team, thread = map(unquote, parts)
        found = Pair(asker=asker, team=team, thread=thread)
        return found if found.route == route else None

    @staticmethod
    def named(name: str) -> "Pair | None":
        """Return the pair that a session was opened for, by the name that it was given then, or None for any other name."""
        parts = _NAMED.fullmatch(name)
        return None if parts is None else Pair(asker=parts[1], team=parts[2], thread=parts[3] or "")

    def __str__(self) -> str:
        return f"{self.asker} → {self.team}{f' ({self.thread})' if self.thread else ''}"


PairStatus = Literal["active", "compact-pending", "archived"]


class Shortage(NamedTuple):
    """What is used up in a conversation with a team, so that nothing goes on there."""

    team: str
    session: SessionId
    kinds: tuple[BudgetKind, ...]

    def __str__(self) -> str:
        return f"team {self.team} waits, {shortage_text(self.session, self.kinds)}"


@dataclass(slots=True)
class TeamExchange:
    """One message to a team, and what came of it so far."""

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
    """The budgets that are used up, where that keeps the work on it from going on."""
    further: tuple[Shortage, ...] = ()
    """What is used up with the teams that this one has asked in turn, and waits for."""

    @property
    def is_open(self) -> bool:
        """Tell whether something may still come of it."""
        return self.state not in ("expired", "answered")


@dataclass(frozen=True, slots=True)
class PairFigures:
    """How a pair's conversation has gone."""

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

    A notice whose time is over is told so as soon as somebody works for the team; until then it is `expired` all the same.
    """
    found: dict[MessageId, TeamExchange] = {}
    until: dict[MessageId, Millis] = {}
    used_up = set[BudgetKind]()
    for recorded in feed.read(session_stream(session)):
        event = recorded.event
        if not isinstance(event, MessageEvent | TurnEvent | PeerEvent | BudgetEvent):
            continue
        match event:
            case MessageAccepted():
                if event.peer is not None:
                    found[event.message] = TeamExchange(event.message, event.peer.team, event.text, event.at)
                    if event.expires is not None:
                        until[event.message] = event.expires
            case TurnStarted():
                for message in event.messages:
                    if message in found:
                        found[message].state, found[message].turn = "working", event.turn
            case PeerAnswerHeld():
                found[event.answer.message].state = "held"
            case PeerAnswered():
                message, answer = event.answer.message, event.answer
                exchange = found.setdefault(message, TeamExchange(message, event.peer.team, "", event.at))
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
    for exchange in found.values():
        if exchange.state == "queued" and until.get(exchange.message, now + 1) <= now:
            exchange.state = "expired"
        elif exchange.state == "working":
            exchange.exhausted = tuple(sorted(used_up))
    return list(found.values())
