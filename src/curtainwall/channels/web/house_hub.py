"""The whole house for every browser: which asks are open, and how sessions stand, told as they change."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from curtainwall.channels.web.clients import Client, Crowd, told, told_json
from curtainwall.channels.web.drawing import draw
from curtainwall.channels.web.house import House
from curtainwall.channels.web.items import scopes_for
from curtainwall.model import (
    ApprovalId,
    ApprovalQuery,
    ApprovalRow,
    CurtainwallError,
    GrantScope,
    PendingAsk,
    SessionId,
    SessionQuery,
    StreamId,
    session_of,
)

MOST_ASKS = 200
_REST_SECONDS = 0.08
_MOST_ROWS = 60

Key = tuple[SessionId, ApprovalId]


@dataclass(frozen=True, slots=True)
class OpenAsk:
    """An open ask of some session, with what a card needs."""

    row: ApprovalRow
    pending: PendingAsk
    session_name: str
    workspace: str

    @property
    def key(self) -> Key:
        """Return what tells it from every other; a short id alone may stand in two sessions."""
        return self.row.session, self.row.approval

    @property
    def scopes(self) -> tuple[GrantScope, ...]:
        """Return how far a yes may reach."""
        return scopes_for(self.row.covers)


class HouseHub:
    """Looks at the lists whenever the log changed, at most a dozen times a second, and tells what is different."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._asks_crowd, self._rows_crowd, self._count_crowd = Crowd(), Crowd(), Crowd()
        self._known: dict[Key, OpenAsk] = {}
        self._order: tuple[Key, ...] = ()
        self._is_read = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow the log."""
        self._task = asyncio.create_task(self._run(), name="web: the whole house")

    async def stop(self) -> None:
        """Send everybody away."""
        for crowd in (self._asks_crowd, self._rows_crowd, self._count_crowd):
            crowd.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def open_asks(self) -> Sequence[OpenAsk]:
        """Return what waits for an answer, oldest first."""
        self._look()
        return [self._known[key] for key in self._order]

    def join(self, client: Client, topic: str) -> None:
        """Tell a client how things stand, and every change from here on; topics are `asks`, `rows` and nothing."""
        self._look()
        client.tell(self._count())
        if topic == "asks":
            client.tell(told_json("only", {"in": "asks", "ids": [card_id(key) for key in self._order]}))
            for key in self._order:
                client.tell(self._card(self._known[key]))
        {"asks": self._asks_crowd, "rows": self._rows_crowd}.get(topic, self._count_crowd).join(client)

    def part(self, client: Client) -> None:
        """Forget a client that left."""
        for crowd in (self._asks_crowd, self._rows_crowd, self._count_crowd):
            crowd.part(client)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(CurtainwallError):
                async with self._house.records.watch() as changes:
                    async for streams in changes:
                        # What comes meanwhile is told together with what comes next.
                        if self._has_listeners():
                            self._tell(streams)
                        await asyncio.sleep(_REST_SECONDS)
            await asyncio.sleep(1)

    def _has_listeners(self) -> bool:
        return any(len(crowd) for crowd in (self._asks_crowd, self._rows_crowd, self._count_crowd))

    def _tell(self, streams: frozenset[StreamId]) -> None:
        before, known = self._order, dict(self._known)
        self._look()
        if before != self._order:
            self._tell_asks(before, known)
        if len(self._rows_crowd):
            self._tell_rows(streams)

    def _tell_asks(self, before: tuple[Key, ...], known: dict[Key, OpenAsk]) -> None:
        for crowd in (self._asks_crowd, self._rows_crowd, self._count_crowd):
            crowd.tell(self._count())
        if not len(self._asks_crowd):
            return
        for key in before:
            if key not in self._known:
                self._asks_crowd.tell(told("put", draw("settled.html", ask=known[key], row=self._settled(key), id=card_id(key))))
        for key in self._order:
            if key not in before:
                self._asks_crowd.tell(self._card(self._known[key]))

    def _tell_rows(self, streams: frozenset[StreamId]) -> None:
        index = self._house.index
        named = [found for stream in streams if (found := session_of(stream)) is not None]
        if named and len(named) <= _MOST_ROWS:
            rows = [row for session in named for row in index.sessions(SessionQuery(prefix=session, limit=1))]
        else:
            rows = index.sessions(SessionQuery(limit=_MOST_ROWS))
        for row in reversed(rows):
            self._rows_crowd.tell(told("put", draw("row.html", row=row, live=True)))

    def _look(self) -> None:
        """Read the list of open asks; the card of each is made once."""
        rows = self._house.index.approvals(ApprovalQuery(limit=MOST_ASKS))
        fresh: dict[Key, OpenAsk] = {}
        for row in rows:
            key = (row.session, row.approval)
            found = self._known.get(key) or self._made(row)
            if found is not None:
                fresh[key] = found
        self._known = fresh
        self._order = tuple(reversed(fresh))

    def _made(self, row: ApprovalRow) -> OpenAsk | None:
        try:
            view = self._house.line.desk.view(row.session)
        except CurtainwallError:
            return None
        pending = next((it for it in view.pending if it.approval == row.approval), None)
        return None if pending is None else OpenAsk(row, pending, view.name, view.workspace.path)

    def _settled(self, key: Key) -> ApprovalRow | None:
        session, approval = key
        rows = self._house.index.approvals(ApprovalQuery(session=session, approval=approval, open_only=False, limit=1))
        return rows[0] if rows else None

    def _card(self, ask: OpenAsk) -> bytes:
        return told("put", draw("card.html", ask=ask, csrf="", live=True))

    def _count(self) -> bytes:
        return told_json("count", {"asks": len(self._order)})


def card_id(key: Key) -> str:
    """Return the name of a card on the page."""
    return f"ask-{key[0]}-{key[1]}"
