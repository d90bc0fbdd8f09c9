"""The hubs that tell browsers what changed: one for the lists of the whole house, and one for each session that somebody looks at."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from curtainwall.channels.asks.answers import Key
from curtainwall.channels.asks.board import Card
from curtainwall.channels.web.live.clients import StreamClient, StreamGroup, sse_json, sse_message
from curtainwall.channels.web.live.session_hub import SessionHub
from curtainwall.channels.web.ports import WebPorts
from curtainwall.channels.web.render.filters import draw
from curtainwall.model import OUTSIDE, ApprovalQuery, ApprovalRow, CurtainwallError, SessionId, SessionQuery, StreamId, TryLater, session_of

MOST_CARDS = 200
"""How many cards one page of the inbox holds."""
_REST_SECONDS = 0.08
_REST_TO_LOOK = 4
_MOST_ROWS = 60


class HouseHub:
    """Looks at the lists whenever the log changed, at most a dozen times a second, and tells what is different."""

    def __init__(self, house: WebPorts) -> None:
        self._house = house
        self._asks, self._later, self._rows, self._rest = StreamGroup(), StreamGroup(), StreamGroup(), StreamGroup()
        self._cards: dict[Key, Card] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow the log."""
        self._task = asyncio.create_task(self._run(), name="web: the whole house")

    async def stop(self) -> None:
        """Send everybody away."""
        for crowd in self._crowds:
            crowd.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def cards(self) -> Sequence[Card]:
        """Return everything that waits for an answer, oldest first."""
        if self._is_watched:
            # Whoever watches has to be told of each change; that is done where it is noticed.
            return self._house.board.cards()
        return tuple(self._looked().values())

    def join(self, client: StreamClient, topic: str) -> None:
        """Tell a client how things stand, and every change from here on.

        `asks` is the first page of the inbox, `later` any other page of it, on which asks end and none is added; `rows` are sessions.
        """
        if not self._is_watched:
            self._looked()
        client.tell(self._count())
        if topic == "asks":
            first = _first(self._cards)
            client.tell(sse_json("only", {"in": "asks", "ids": [card_id(key) for key in first]}))
            client.tell(self._more())
            for card in first.values():
                client.tell(_card(card))
        elif topic == "later":
            client.tell(sse_json("only", {"in": "asks", "ids": [card_id(key) for key in self._cards]}))
        {"asks": self._asks, "later": self._later, "rows": self._rows}.get(topic, self._rest).join(client)

    def part(self, client: StreamClient) -> None:
        """Forget a client that left."""
        for crowd in self._crowds:
            crowd.part(client)

    @property
    def _crowds(self) -> tuple[StreamGroup, ...]:
        return self._asks, self._later, self._rows, self._rest

    @property
    def _is_watched(self) -> bool:
        return any(len(crowd) for crowd in self._crowds)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(CurtainwallError):
                async for streams in self._house.line.feed.changes():
                    # What comes meanwhile is told together with what comes next.
                    if self._is_watched:
                        began = time.monotonic()
                        self._tell(streams)
                        # With very many asks a look takes longer, and others have to be served in between.
                        await asyncio.sleep(max(_REST_SECONDS, _REST_TO_LOOK * (time.monotonic() - began)))
            await asyncio.sleep(1)

    def _looked(self) -> dict[Key, Card]:
        self._cards = {card.key: card for card in self._house.board.cards()}
        return self._cards

    def _tell(self, streams: frozenset[StreamId]) -> None:
        before = self._cards
        now = self._looked()
        if before != now:
            for crowd in self._crowds:
                crowd.tell(self._count())
            if len(self._asks) or len(self._later):
                self._send_asks(before, now)
        if len(self._rows):
            self._send_rows(streams)

    def _send_asks(self, before: Mapping[Key, Card], now: Mapping[Key, Card]) -> None:
        for key, card in before.items():
            if key in now:
                continue
            row = self._settled(key)
            pieces = [sse_message("put", draw("settled.html", card=card, row=row, id=card_id(key)))]
            if row is not None and row.status != "open":
                pieces.append(sse_message("put", draw("recent.html", row=row)))
            for piece in pieces:
                self._asks.tell(piece)
                self._later.tell(piece)
        shown = _first(before)
        for key, card in _first(now).items():
            if shown.get(key) != card:
                self._asks.tell(_card(card))
        if len(before) != len(now):
            self._asks.tell(self._more())

    def _send_rows(self, streams: frozenset[StreamId]) -> None:
        index = self._house.index
        named = [found for stream in streams if (found := session_of(stream)) is not None]
        if named and len(named) <= _MOST_ROWS:
            rows = [row for session in named for row in index.sessions(SessionQuery(prefix=session, without_agent=OUTSIDE, limit=1))]
        else:
            rows = list(index.sessions(SessionQuery(without_agent=OUTSIDE, limit=_MOST_ROWS))) if not streams else []
        for row in reversed(rows):
            self._rows.tell(sse_message("put", draw("row.html", row=row)))

    def _settled(self, key: Key) -> ApprovalRow | None:
        session, approval = key
        rows = self._house.index.approvals(ApprovalQuery(session=session, approval=approval, open_only=False, limit=1))
        return rows[0] if rows else None

    def _count(self) -> bytes:
        return sse_json("count", {"asks": len(self._cards)})

    def _more(self) -> bytes:
        return sse_message("put", draw("more.html", more=more_of(tuple(self._cards.values()))))


@dataclass(frozen=True, slots=True)
class More:
    """What a page of the inbox leaves out: how many asks there are, how many it shows, and where the next page begins."""

    shown: int
    total: int
    next: str = ""
    is_later: bool = False


def more_of(cards: Sequence[Card], total: int | None = None) -> More:
    """Return what a page leaves out that begins with these cards; with a total, it is a later page."""
    shown = cards[:MOST_CARDS]
    following = "/".join(shown[-1].key) if len(cards) > len(shown) else ""
    return More(len(shown), len(cards) if total is None else total, following, is_later=total is not None)


def _first(cards: Mapping[Key, Card]) -> dict[Key, Card]:
    return dict(islice(cards.items(), MOST_CARDS))


def card_id(key: Key) -> str:
    """Return the name of a card on the page."""
    return f"ask-{key[0]}-{key[1]}"


def _card(card: Card) -> bytes:
    return sse_message("put", draw("card.html", card=card, csrf=""))


_MOST_STREAMS = 1_000
_LINGER_SECONDS = 20.0


class Hubs:
    """Streams of this process. A session that nobody has looked at for a while is let go of."""

    def __init__(self, house: WebPorts) -> None:
        self.house = house
        self._sessions: dict[SessionId, SessionHub] = {}
        self._starting: dict[SessionId, asyncio.Task[SessionHub]] = {}
        self._streams = 0
        self._sweeper: asyncio.Task[None] | None = None
        self.whole = HouseHub(house)

    def start(self) -> None:
        """Begin to follow the house."""
        self.whole.start()
        self._sweeper = asyncio.create_task(self._sweep(), name="web: hubs")

    async def stop(self) -> None:
        """Send every browser away."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        hubs, self._sessions = self._sessions, {}
        await asyncio.gather(self.whole.stop(), *(hub.stop() for hub in hubs.values()))

    async def session(self, session: SessionId) -> SessionHub:
        """Return the hub of a session that is there, read up to the end of its log."""
        hub = self._sessions.get(session)
        if hub is not None and not hub.is_over:
            hub.last_seen = time.monotonic()
            return hub
        task = self._starting.get(session)
        if task is None:
            task = self._starting[session] = asyncio.create_task(self._started(session))
        return await asyncio.shield(task)

    async def stream(
        self, join: Callable[[StreamClient], None], part: Callable[[StreamClient], None], is_welcome: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Go on with what a client is told from the moment on in which somebody reads."""
        client = StreamClient()
        self._streams += 1
        try:
            join(client)
            async for message in client.messages(is_welcome):
                yield message
        finally:
            self._streams -= 1
            part(client)

    def require_room(self) -> None:
        """Raise `TryLater` where there are too many streams."""
        if self._streams >= _MOST_STREAMS:
            raise TryLater(f"{_MOST_STREAMS} pages listen already; close some")

    async def _started(self, session: SessionId) -> SessionHub:
        hub = SessionHub(self.house, session)
        try:
            await hub.start()
            self._sessions[session] = hub
        finally:
            self._starting.pop(session, None)
        return hub

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_LINGER_SECONDS / 2)
            for session, hub in tuple(self._sessions.items()):
                if hub.is_idle and time.monotonic() - hub.last_seen > _LINGER_SECONDS:
                    del self._sessions[session]
                    await hub.stop()
