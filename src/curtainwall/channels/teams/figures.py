"""What a pair's log tells: the messages with their answers, and the figures of the conversation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from curtainwall.channels.teams.pairs import Pair
from curtainwall.model import (
    BudgetExhausted,
    BudgetKind,
    BudgetRaised,
    Feed,
    MessageAccepted,
    MessageId,
    Millis,
    PeerAnswer,
    PeerAnswered,
    PeerAnswerHeld,
    SessionId,
    TurnStarted,
    session_stream,
)

PairStatus = Literal["active", "compact-pending", "archived"]


class Shortage(NamedTuple):
    """What is used up in a conversation with a team, so that nothing goes on there."""

    team: str
    session: SessionId
    kinds: tuple[BudgetKind, ...]

    def __str__(self) -> str:
        return f"team {self.team} waits, {shortage(self.session, self.kinds)}"


@dataclass(slots=True)
class Exchange:
    """One message to a team, and what came of it so far."""

    message: MessageId
    by: str
    text: str
    at: Millis
    state: Literal["queued", "working", "held", "expired", "answered"] = "queued"
    answer: PeerAnswer | None = None
    answered: Millis | None = None
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


def shortage(session: SessionId, kinds: Sequence[str]) -> str:
    """Return which budgets of a conversation are used up, and how a human allows more."""
    commands = " and ".join(f"`curtainwall sessions budget {session} {kind} AMOUNT`" for kind in kinds)
    return f"its budget of {' and '.join(kinds)} is used up: {commands} {'allow' if len(kinds) > 1 else 'allows'} more"


def exchanges(feed: Feed, session: SessionId, now: Millis) -> list[Exchange]:
    """Return every message of the pair with its answer, oldest first.

    A notice whose time is over is told so as soon as somebody works for the team; until then it is `expired` all the same.
    """
    found: dict[MessageId, Exchange] = {}
    until: dict[MessageId, Millis] = {}
    used_up = set[BudgetKind]()
    for recorded in feed.read(session_stream(session)):
        match recorded.event:
            case MessageAccepted(peer=peer) as said if peer is not None:
                found[said.message] = Exchange(said.message, peer.team, said.text, said.at)
                if said.expires is not None:
                    until[said.message] = said.expires
            case TurnStarted() as started:
                for message in started.messages:
                    if message in found:
                        found[message].state = "working"
            case PeerAnswerHeld() as held:
                found[held.answer.message].state = "held"
            case PeerAnswered() as told:
                exchange = found.setdefault(told.answer.message, Exchange(told.answer.message, told.peer.team, "", told.at))
                exchange.state, exchange.answer, exchange.answered = "answered", told.answer, told.at
            case BudgetExhausted() as over:
                used_up.add(over.kind)
            case BudgetRaised() as raised:
                used_up.discard(raised.kind)
            case _:
                continue
    for exchange in found.values():
        if exchange.state == "queued" and until.get(exchange.message, now + 1) <= now:
            exchange.state = "expired"
        elif exchange.state == "working":
            exchange.exhausted = tuple(sorted(used_up))
    return list(found.values())
