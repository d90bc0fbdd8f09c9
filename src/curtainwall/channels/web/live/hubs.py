"""The hubs that send changes to browsers: one for the lists of all sessions, and one for each session that is open in a browser."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import islice

from curtainwall.channels.asks.answerers import Key
from curtainwall.channels.asks.board import Card
from curtainwall.channels.web.live.clients import StreamClient, StreamGroup, sse_json, sse_message
from curtainwall.channels.web.live.session_hub import SessionHub
from curtainwall.channels.web.ports import WebPorts
from curtainwall.channels.web.render.filters import draw
from curtainwall.model import (
    OUTSIDE,
    ApprovalQuery,
    ApprovalRow,
    CurtainwallError,
    SessionId,
    SessionQuery,
    StreamId,
    TryLater,
    record,
    session_of,
)

MOST_CARDS = 200
"""How many cards one page of the inbox holds."""
_REST_SECONDS = 0.08
_REST_TO_WORK = 4
_MOST_ROWS = 60


class ListsHub:
    """Refreshes the lists whenever the log changes, at most a dozen times a second, and sends what is different."""

    def __init__(self, ports: WebPorts) -> None:
        self._ports = ports
        self._asks, self._later, self._rows, self._rest = StreamGroup(), StreamGroup(), StreamGroup(), StreamGroup()
        self._cards: dict[Key, Card] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start following the log."""
        self._task = asyncio.create_task(self._run(), name="web: the whole house")

    async def stop(self) -> None:
        """Disconnect all clients."""
        for group in self._groups:
            group.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def cards(self) -> Sequence[Card]:
        """Return all open cards, oldest first."""
        if self._is_watched:
            # Clients are notified of each change at the place where it is noticed.
            return self._ports.board.cards()
        return tuple(self._refresh().values())

    def join(self, client: StreamClient, topic: str) -> None:
        """Send a client the current state, and every change from now on.

        `asks` is the first page of the inbox; `later` is any other page of it, where asks end and none is added; `rows` are sessions.
        """
        if not self._is_watched:
            self._refresh()
        client.send(self._count())
        if topic == "asks":
            first = _first(self._cards)
            client.send(sse_json("only", {"in": "asks", "ids": [card_id(key) for key in first]}))
            client.send(self._more())
            for card in first.values():
                client.send(_card(card))
        elif topic == "later":
            client.send(sse_json("only", {"in": "asks", "ids": [card_id(key) for key in self._cards]}))
        {"asks": self._asks, "later": self._later, "rows": self._rows}.get(topic, self._rest).join(client)

    def part(self, client: StreamClient) -> None:
        """Forget a client that left."""
        for group in self._groups:
            group.part(client)

    @property
    def _groups(self) -> tuple[StreamGroup, ...]:
        return self._asks, self._later, self._rows, self._rest

    @property
    def _is_watched(self) -> bool:
        return any(len(group) for group in self._groups)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(CurtainwallError):
                async for streams in self._ports.line.feed.changes():
                    # Changes that arrive meanwhile are sent together with the next ones.
                    if self._is_watched:
                        started = time.monotonic()
                        self._send_changes(streams)
                        # With very many asks a refresh takes longer; this leaves time for other work in between.
                        await asyncio.sleep(max(_REST_SECONDS, _REST_TO_WORK * (time.monotonic() - started)))
            await asyncio.sleep(1)

    def _refresh(self) -> dict[Key, Card]:
        self._cards = {card.key: card for card in self._ports.board.cards()}
        return self._cards

    def _send_changes(self, streams: frozenset[StreamId]) -> None:
        before = self._cards
        current = self._refresh()
        if before != current:
            for group in self._groups:
                group.send(self._count())
            if len(self._asks) or len(self._later):
                self._send_asks(before, current)
        if len(self._rows):
            self._send_rows(streams)

    def _send_asks(self, before: Mapping[Key, Card], current: Mapping[Key, Card]) -> None:
        for key, card in before.items():
            if key in current:
                continue
            row = self._settled(key)
            pieces = [sse_message("put", draw("settled.html", card=card, row=row, id=card_id(key)))]
            if row is not None and row.status != "open":
                pieces.append(sse_message("put", draw("recent.html", row=row)))
            for piece in pieces:
                self._asks.send(piece)
                self._later.send(piece)
        shown = _first(before)
        for key, card in _first(current).items():
            if shown.get(key) != card:
                self._asks.send(_card(card))
        if len(before) != len(current):
            self._asks.send(self._more())

    def _send_rows(self, streams: frozenset[StreamId]) -> None:
        index = self._ports.index
        sessions = [id_ for stream in streams if (id_ := session_of(stream)) is not None]
        if sessions and len(sessions) <= _MOST_ROWS:
            rows = [row for session in sessions for row in index.sessions(SessionQuery(prefix=session, without_agent=OUTSIDE, limit=1))]
        else:
            rows = list(index.sessions(SessionQuery(without_agent=OUTSIDE, by_activity=True, limit=_MOST_ROWS))) if not streams else []
        for row in reversed(rows):
            self._rows.send(sse_message("put", draw("row.html", row=row)))

    def _settled(self, key: Key) -> ApprovalRow | None:
        session, approval = key
        rows = self._ports.index.approvals(ApprovalQuery(session=session, approval=approval, open_only=False, limit=1))
        return rows[0] if rows else None

    def _count(self) -> bytes:
        return sse_json("count", {"asks": len(self._cards)})

    def _more(self) -> bytes:
        return sse_message("put", draw("more.html", more=more_of(tuple(self._cards.values()))))


@record
class More:
    """The extent of a page of the inbox: how many asks there are, how many it shows, and where the next page begins."""

    shown: int
    total: int
    next: str = ""
    is_later: bool = False


def more_of(cards: Sequence[Card], total: int | None = None) -> More:
    """Return what a page beginning with these cards leaves out; with a total, it is a later page."""
    shown = cards[:MOST_CARDS]
    following = "/".join(shown[-1].key) if len(cards) > len(shown) else ""
    return More(len(shown), len(cards) if total is None else total, following, is_later=total is not None)


def _first(cards: Mapping[Key, Card]) -> dict[Key, Card]:
    return dict(islice(cards.items(), MOST_CARDS))


def card_id(key: Key) -> str:
    """Return the id of a card on the page."""
    return f"ask-{key[0]}-{key[1]}"


def _card(card: Card) -> bytes:
    return sse_message("put", draw("card.html", card=card, csrf=""))


_MOST_STREAMS = 1_000
_LINGER_SECONDS = 20.0


class Hubs:
    """The event streams of this process. The hub of a session that nobody looks at is stopped after a while."""

    def __init__(self, ports: WebPorts) -> None:
        self.ports = ports
        self._sessions: dict[SessionId, SessionHub] = {}
        self._starting: dict[SessionId, asyncio.Task[SessionHub]] = {}
        self._streams = 0
        self._sweeper: asyncio.Task[None] | None = None
        self.lists = ListsHub(ports)

    def start(self) -> None:
        """Start following the log."""
        self.lists.start()
        self._sweeper = asyncio.create_task(self._sweep(), name="web: hubs")

    async def stop(self) -> None:
        """Disconnect every browser."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        hubs, self._sessions = self._sessions, {}
        await asyncio.gather(self.lists.stop(), *(hub.stop() for hub in hubs.values()))

    async def session(self, session: SessionId) -> SessionHub:
        """Return the hub of an existing session, read up to the end of its log."""
        hub = self._sessions.get(session)
        if hub is not None and not hub.is_over:
            hub.last_seen = time.monotonic()
            return hub
        task = self._starting.get(session)
        if task is None:
            task = self._starting[session] = asyncio.create_task(self._start_session(session))
        return await asyncio.shield(task)

    async def stream(
        self, join: Callable[[StreamClient], None], part: Callable[[StreamClient], None], is_welcome: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Yield the messages for a client, from the moment someone reads."""
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
        """Raise `TryLater` if there are too many streams."""
        if self._streams >= _MOST_STREAMS:
            raise TryLater(f"{_MOST_STREAMS} pages listen already; close some")

    async def _start_session(self, session: SessionId) -> SessionHub:
        hub = SessionHub(self.ports, session)
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
