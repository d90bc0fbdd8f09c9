"""One session for every browser that has it open: read once, rendered once, sent to all."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import assert_never

from curtainwall.channels.conversation import StreamedMessage
from curtainwall.channels.plain import plain
from curtainwall.channels.web.live.clients import StreamClient, StreamGroup, sse_json, sse_message
from curtainwall.channels.web.ports import WebPorts
from curtainwall.channels.web.render.filters import LONGEST_TEXT, draw, draw_all
from curtainwall.channels.web.render.items import AnyItem, PageConversation, SpeechItem
from curtainwall.channels.web.render.text import cut, is_broken
from curtainwall.model import (
    AgentSpoke,
    CurtainwallError,
    Feed,
    InterruptAsked,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Recorded,
    SessionId,
    SpeechEvent,
    TextStreamed,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
    session_stream,
)

WINDOW = 2_000
"""How many log entries are read for a page."""

EARLIER = 600
"""How many entries an earlier page shows."""

_MOST_AT_ONCE = 500
_MOST_CHARACTERS = 1_000_000
_RAIL_SECONDS = 0.4
MOST_ITEMS = 150
"""How many items of a conversation stay in memory, besides those that may still change."""
RAIL = ("status", "asks", "budget", "labels", "grants", "rules")
"""The parts of a session's sidebar, each rendered and replaced separately."""


def window_at(feed: Feed, session: SessionId, before: int | None = None) -> tuple[PageConversation, Sequence[Recorded]]:
    """Return an empty page and the log entries for it: the last ones, or the last ones before an entry.

    For an earlier window, some entries after it are included, which show how its last calls ended.
    """
    stream = session_stream(session)
    end = feed.head(stream) if before is None else min(before - 1, feed.head(stream))
    begin, more = max(end - (WINDOW if before is None else EARLIER), 0), 0 if before is None else EARLIER
    conversation = PageConversation(begin)
    # The first event says where the session works, which later events need.
    for first in feed.read(stream, 0, 1) if begin else ():
        conversation.activity.take(first.event)
    return conversation, feed.read(stream, begin, end - begin + more)


class SessionHub:
    """Follows a session's log while someone looks at it. INVARIANT: a joining client receives exactly what it has not seen."""

    def __init__(self, ports: WebPorts, session: SessionId) -> None:
        self._ports = ports
        self._session = session
        self._stream = session_stream(session)
        self._clients = StreamGroup()
        self._streamed = StreamedMessage()
        self._rail: dict[str, str] = {}
        self._has_changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.conversation = PageConversation()
        self.last_seen = time.monotonic()

    async def start(self) -> None:
        """Read the end of the log, and follow it from there."""
        self.conversation, recorded = await asyncio.to_thread(window_at, self._ports.line.feed, self._session)
        for record in recorded:
            self._take(record)
        self._tasks = [asyncio.create_task(work) for work in (self._follow(), self._listen(), self._keep_rail())]
        for task in self._tasks:
            # When any of them ends, the hub ends: browsers resume from their cursors at a new one.
            task.add_done_callback(lambda _: self._clients.close())

    async def stop(self) -> None:
        """Disconnect all clients and stop all tasks."""
        self._clients.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Each task keeps the error that ended it and, through the traceback, this hub.
        self._tasks = []

    @property
    def is_over(self) -> bool:
        """Tell whether the hub has stopped following."""
        return not self._tasks or any(task.done() for task in self._tasks)

    async def window(self) -> PageConversation:
        """Read the end of the log again, including the items that are no longer held here."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> PageConversation:
        conversation, recorded = window_at(self._ports.line.feed, self._session)
        for record in recorded:
            conversation.take(record)
        return conversation

    @property
    def is_idle(self) -> bool:
        """Tell whether no client is connected."""
        return not len(self._clients)

    def join(self, client: StreamClient, after: int) -> None:
        """Send a client what it has not seen, and everything from now on."""
        self.last_seen = time.monotonic()
        is_here = self.conversation.begin <= after <= self.conversation.seq
        missed = self.conversation.changed_after(after) if is_here else None
        if missed is None or len(missed) > _MOST_AT_ONCE:
            client.send(sse_message("reload", "much has happened meanwhile"))
        elif missed:
            client.send(self._put(*missed))
        if self._streamed.text:
            client.send(self._text_so_far())
        for html in self._rail.values():
            client.send(sse_message("put", html))
        self._clients.join(client)
        if not self._rail:
            # The page may have been rendered without it.
            self._has_changed.set()

    def part(self, client: StreamClient) -> None:
        """Forget a client that left."""
        self._clients.part(client)
        self.last_seen = time.monotonic()

    def _text_so_far(self) -> bytes:
        text = self._streamed.text
        shown = plain(cut(text, LONGEST_TEXT))
        return sse_json("say", {"id": self.conversation.saying, "to": len(text), "text": shown})

    def _put(self, *items: AnyItem) -> bytes:
        return sse_message(
            "put", draw_all("item.html", items, csrf="", session=self._session, load=self._ports.records.load), self.conversation.seq
        )

    def _take(self, recorded: Recorded) -> AnyItem | None:
        event = recorded.event
        if isinstance(event, SpeechEvent | ModelEvent | TurnEvent):
            self._take_text(event)
        item = self.conversation.take(recorded)
        self.conversation.shed(MOST_ITEMS, _MOST_CHARACTERS)
        return item

    def _take_text(self, event: SpeechEvent | ModelEvent | TurnEvent) -> None:
        match event:
            case TextStreamed():
                self._streamed.logged(event.text)
            case AgentSpoke():
                self._streamed.spoke(event.text)
            case ModelFailed() | TurnEnded():
                self._streamed.broke_off()
            case ModelRequested() | ModelResponded() | TurnStarted() | TurnResumed() | InterruptAsked():
                pass
            case _:
                assert_never(event)

    async def _follow(self) -> None:
        async for recorded in self._ports.line.feed.follow(self._stream, self.conversation.seq):
            item = self._take(recorded)
            if isinstance(recorded.event, TurnEnded | ModelResponded):
                self._clients.send(sse_json("doing", {"text": ""}))
            if not isinstance(recorded.event, TextStreamed):
                self._has_changed.set()
            if not len(self._clients):
                continue
            if item is None:
                # Advance the cursor, so that a client that reconnects is not sent old entries.
                self._clients.send(sse_message("seen", "", recorded.seq))
            elif isinstance(item, SpeechItem) and not item.is_whole:
                self._clients.send(self._text_so_far())
            else:
                self._clients.send(self._put(item))

    async def _listen(self) -> None:
        async with self._ports.line.live.listen(self._session) as lives:
            async for live in lives:
                if live.kind != "text":
                    self._clients.send(sse_json("doing", {"text": plain(live.text)[:200]}))
                    continue
                before = len(self._streamed.text)
                self._streamed.add_live(live.text)
                text = self._streamed.text
                # A page holds a limited amount and no endless words; the log sends the rest once the message is complete.
                if before < len(text) <= LONGEST_TEXT and is_broken(text):
                    piece = {"id": self.conversation.saying, "at": before, "to": len(text), "text": plain(text[before:])}
                    self._clients.send(sse_json("say", piece))

    async def _keep_rail(self) -> None:
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            started = time.monotonic()
            with contextlib.suppress(CurtainwallError):
                await self._draw_rail()
            # A long log takes longer to view, so view it less often.
            await asyncio.sleep(max(_RAIL_SECONDS, 8 * (time.monotonic() - started)))

    async def _draw_rail(self) -> None:
        if not len(self._clients):
            return
        # A long log takes a while to fold the first time.
        view = await asyncio.to_thread(self._ports.line.desk.view, self._session)
        for name in RAIL:
            html = draw(f"rail/{name}.html", view=view, csrf="")
            if self._rail.get(name) != html:
                self._rail[name] = html
                self._clients.send(sse_message("put", html))
