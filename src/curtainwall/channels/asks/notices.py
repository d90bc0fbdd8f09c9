"""Decides which asks people still have to be notified about: each once, again if nobody answers, and across restarts."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Iterable

from curtainwall.channels.asks.answerers import Key
from curtainwall.channels.asks.board import Board, Card
from curtainwall.channels.plain import short
from curtainwall.model import Clock, Marks, Millis, record

_FAR = 24 * 3_600_000
_NAMED = 3
_ROOM = 80


@record
class Notice:
    """Cards that are due for notification: new ones, and those still waiting.

    If the process dies before a sent notice is recorded, the notice is sent again under the same id.
    """

    new: tuple[Card, ...]
    again: tuple[Card, ...]
    id: str

    @property
    def title(self) -> str:
        """The subject line; nothing in it was written by an agent."""
        count = len(self.new) + len(self.again)
        still = "still " if not self.new else ""
        return f"{'an answer is' if count == 1 else f'{count} answers are'} {still}wanted"

    @property
    def text(self) -> str:
        """Tools and sessions, but nothing of what was asked for."""
        cards = (*self.new, *self.again)
        lines = [short(f"{card.tool} in {f'{card.origin}, ' if card.origin else ''}{card.name}", _ROOM) for card in cards[:_NAMED]]
        more = [f"and {len(cards) - _NAMED} more"] if len(cards) > _NAMED else []
        return "\n".join((*lines, *more))


@record
class NoticePace:
    """How long to wait before the first notice, when to repeat it, and how many seconds to leave between two notices."""

    after: Millis = 0
    remind: Millis | None = None
    every: float = 0.0


class Announcer:
    """Follows a board and yields notices; what was sent is recorded under `channel`."""

    def __init__(self, channel: str, board: Board, marks: Marks, clock: Clock, pace: NoticePace) -> None:
        self._channel = channel
        self._board = board
        self._marks = marks
        self._clock = clock
        self._pace = pace
        self._open: dict[Key, Card] = {}
        self._changed = asyncio.Event()
        # When each card is due on the monotonic clock, by card and the time of its last notice.
        self._due_at: dict[tuple[Key, Millis | None], Millis] = {}

    async def follow(self) -> AsyncGenerator[Notice]:
        """Yield what is due, as much as there is at once; asking for the next confirms that the previous one was sent."""
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
        """Return how long a card still has to wait: never longer than the pace says, even if someone sets the clock meanwhile."""
        last = self._last_notice(card)
        pace = self._pace.after if last is None else self._pace.remind
        if pace is None:
            return _FAR
        left = min((card.ask.asked if last is None else last) + pace - self._clock.now(), pace)
        due_at = self._due_at.setdefault((card.key, last), self._clock.elapsed() + left)
        return min(left, due_at - self._clock.elapsed())

    def _last_notice(self, card: Card) -> Millis | None:
        """Return when the last notice about a card, or an identical ask, was sent."""
        times = [int(mark) for key in card.joined if (mark := self._marks.get(self._channel, _name(key))) is not None]
        return max(times, default=None)

    def _id_of(self, cards: Iterable[Card]) -> str:
        """Return an id for a notice about these cards: stable until the notice is recorded, and new for each repetition."""
        notices = sorted(f"{_name(card.key)} {self._last_notice(card)}" for card in cards)
        return hashlib.sha256("\n".join(notices).encode()).hexdigest()[:32]

    async def _forget(self) -> None:
        """Delete the records of asks that are settled."""
        open_ = {_name(key) for card in self._open.values() for key in card.joined}
        self._due_at = {key_and_time: due for key_and_time, due in self._due_at.items() if key_and_time[0] in self._open}
        await self._marks.set(self._channel, {name: None for name in self._marks.all(self._channel) if name not in open_})


def _name(key: Key) -> str:
    return f"{key[0]}/{key[1]}"
