"""Which asks somebody still has to be told of: each once, again where nobody answers, and over restarts."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

from curtainwall.channels.asks.answers import Key
from curtainwall.channels.asks.board import Board, Card
from curtainwall.channels.plain import short
from curtainwall.model import Clock, Marks, Millis

_FAR = 24 * 3_600_000
_NAMED = 3
_ROOM = 80


@dataclass(frozen=True, slots=True)
class Notice:
    """Cards that are due to be told: new ones, and those that still wait.

    Whoever died before it was remembered that a notice was told tells it again, under the same id.
    """

    new: tuple[Card, ...]
    again: tuple[Card, ...]
    id: str

    @property
    def title(self) -> str:
        """Return what it is about; nothing in it was written by an agent."""
        count = len(self.new) + len(self.again)
        still = "still " if not self.new else ""
        return f"{'an answer is' if count == 1 else f'{count} answers are'} {still}wanted"

    @property
    def text(self) -> str:
        """Return tools and sessions, and nothing of what was asked for."""
        cards = (*self.new, *self.again)
        lines = [short(f"{card.tool} in {f'{card.origin}, ' if card.origin else ''}{card.name}", _ROOM) for card in cards[:_NAMED]]
        more = [f"and {len(cards) - _NAMED} more"] if len(cards) > _NAMED else []
        return "\n".join((*lines, *more))


@dataclass(frozen=True, slots=True)
class NoticePace:
    """How long is waited with an ask, after what time it is repeated, and how many seconds pass between two notices."""

    after: Millis = 0
    remind: Millis | None = None
    every: float = 0.0


class Announcer:
    """Follows a board for somebody who is told by messages; what was told is remembered under `channel`."""

    def __init__(self, channel: str, board: Board, marks: Marks, clock: Clock, pace: NoticePace) -> None:
        self._channel = channel
        self._board = board
        self._marks = marks
        self._clock = clock
        self._pace = pace
        self._open: dict[Key, Card] = {}
        self._changed = asyncio.Event()
        # For each card and the time it was last told of: when it is due on the clock that nobody sets.
        self._measured: dict[tuple[Key, Millis | None], Millis] = {}

    async def follow(self) -> AsyncGenerator[Notice]:
        """Yield what is due, as much as there is at once; asking for the next says that the one before was told."""
        follower = asyncio.create_task(self._follow(), name=f"asks for {self._channel}")
        try:
            await self._changed.wait()
            while True:
                self._changed.clear()
                await self._forget()
                now = self._clock.now()
                new, again = self._due()
                if new or again:
                    yield Notice(new, again, self._id_of((*new, *again)))
                    await self._marks.set(self._channel, {_name(key): str(now) for card in (*new, *again) for key in card.joined})
                    await asyncio.sleep(self._pace.every)
                    continue
                await self._wait(follower, min((self._left(card) for card in self._open.values()), default=_FAR))
        finally:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)

    async def _follow(self) -> None:
        self._open = {card.key: card for card in self._board.cards()}
        self._changed.set()
        async for card in self._board.follow():
            if card.settled is None:
                self._open[card.key] = card
            else:
                self._open.pop(card.key, None)
            self._changed.set()

    async def _wait(self, follower: "asyncio.Task[None]", left: Millis) -> None:
        changed = asyncio.create_task(self._changed.wait())
        due = asyncio.create_task(self._clock.sleep_until(self._clock.now() + left))
        try:
            await asyncio.wait((changed, due, follower), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            due.cancel()
        if follower.done():
            follower.result()

    def _due(self) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
        due = [card for card in self._open.values() if self._left(card) <= 0]
        return tuple(card for card in due if self._last_notice(card) is None), tuple(
            card for card in due if self._last_notice(card) is not None
        )

    def _left(self, card: Card) -> Millis:
        """Return how long is still waited with a card: never longer than the pace says, whoever sets the clock meanwhile."""
        told = self._last_notice(card)
        pace = self._pace.after if told is None else self._pace.remind
        if pace is None:
            return _FAR
        left = min((card.ask.asked if told is None else told) + pace - self._clock.now(), pace)
        measured = self._measured.setdefault((card.key, told), self._clock.elapsed() + left)
        return min(left, measured - self._clock.elapsed())

    def _last_notice(self, card: Card) -> Millis | None:
        """Return when somebody was last told of a card, or of an ask that is the same."""
        found = [int(mark) for key in card.joined if (mark := self._marks.get(self._channel, _name(key))) is not None]
        return max(found, default=None)

    def _id_of(self, cards: Iterable[Card]) -> str:
        """Return a name for telling of these cards: the same until they are told, and another one for each time after."""
        told = sorted(f"{_name(card.key)} {self._last_notice(card)}" for card in cards)
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]

    async def _forget(self) -> None:
        """Let go of what was told of asks that are settled."""
        open_ = {_name(key) for card in self._open.values() for key in card.joined}
        self._measured = {which: due for which, due in self._measured.items() if which[0] in self._open}
        await self._marks.set(self._channel, {name: None for name in self._marks.all(self._channel) if name not in open_})


def _name(key: Key) -> str:
    return f"{key[0]}/{key[1]}"
