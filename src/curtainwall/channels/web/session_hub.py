"""One session for every browser that has it open: folded once, drawn once, told to all."""

import asyncio
import contextlib
import time

from curtainwall.channels.plain import plain
from curtainwall.channels.saying import Saying
from curtainwall.channels.web.breaking import cut, is_broken
from curtainwall.channels.web.clients import Client, Crowd, told, told_json
from curtainwall.channels.web.drawing import LONGEST_TEXT, draw, draw_all
from curtainwall.channels.web.house import House
from curtainwall.channels.web.items import AnyItem, Conversation, Spoke
from curtainwall.model import (
    AgentSpoke,
    CurtainwallError,
    ModelFailed,
    ModelResponded,
    Recorded,
    SessionId,
    TextStreamed,
    TurnEnded,
    session_stream,
)

_MOST_AT_ONCE = 500
_RAIL_SECONDS = 0.4
RAIL = ("status", "asks", "budget", "labels", "grants", "rules")
"""The parts of a session's side, each drawn and replaced by itself."""


class SessionHub:
    """Follows a session's log for as long as somebody looks. INVARIANT: a joining client is told exactly what it has not seen."""

    def __init__(self, house: House, session: SessionId) -> None:
        self._house = house
        self._session = session
        self._stream = session_stream(session)
        self._crowd = Crowd()
        self._saying = Saying()
        self._rail: dict[str, str] = {}
        self._has_changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.conversation = Conversation()
        self.last_seen = time.monotonic()

    async def start(self) -> None:
        """Read the log up to its end, and follow it from there."""
        recorded = await asyncio.to_thread(self._house.line.feed.read, self._stream)
        for it in recorded:
            self._take(it)
        self._tasks = [asyncio.create_task(work) for work in (self._follow(), self._listen(), self._keep_rail())]
        for task in self._tasks:
            # Whatever ends one of them ends the hub: browsers come back from their cursors, to a new one.
            task.add_done_callback(lambda _: self._crowd.close())

    async def stop(self) -> None:
        """Let go of everybody and everything."""
        self._crowd.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def is_over(self) -> bool:
        """Tell whether it follows no longer."""
        return any(task.done() for task in self._tasks)

    @property
    def is_idle(self) -> bool:
        """Tell whether nobody listens."""
        return not len(self._crowd)

    def join(self, client: Client, after: int) -> None:
        """Tell a client what it has not seen, and everything from here on."""
        self.last_seen = time.monotonic()
        missed = self.conversation.changed_after(after) if after <= self.conversation.seq else None
        if missed is None or len(missed) > _MOST_AT_ONCE:
            client.tell(told("reload", "much has happened meanwhile"))
        elif missed:
            client.tell(self._put(*missed))
        if self._saying.text:
            client.tell(self._said_so_far())
        for html in self._rail.values():
            client.tell(told("put", html))
        self._crowd.join(client)

    def part(self, client: Client) -> None:
        """Forget a client that left."""
        self._crowd.part(client)
        self.last_seen = time.monotonic()

    def _said_so_far(self) -> bytes:
        text = self._saying.text
        shown = plain(cut(text, LONGEST_TEXT))
        return told_json("say", {"id": self.conversation.saying, "to": len(text), "text": shown})

    def _put(self, *items: AnyItem) -> bytes:
        return told(
            "put", draw_all("item.html", items, csrf="", session=self._session, load=self._house.records.load), self.conversation.seq
        )

    def _take(self, recorded: Recorded) -> AnyItem | None:
        match recorded.event:
            case TextStreamed(text=text):
                self._saying.logged(text)
            case AgentSpoke(text=text):
                self._saying.spoke(text)
            case ModelFailed() | TurnEnded():
                self._saying.broke_off()
            case _:
                pass
        return self.conversation.take(recorded)

    async def _follow(self) -> None:
        async for recorded in self._house.line.feed.follow(self._stream, self.conversation.seq):
            item = self._take(recorded)
            if isinstance(recorded.event, TurnEnded | ModelResponded):
                self._crowd.tell(told_json("doing", {"text": ""}))
            if not isinstance(recorded.event, TextStreamed):
                self._has_changed.set()
            if not len(self._crowd):
                continue
            if item is None:
                # The cursor goes on, so that whoever comes back is not told of old things.
                self._crowd.tell(told("seen", "", recorded.seq))
            elif isinstance(item, Spoke) and not item.is_whole:
                self._crowd.tell(self._said_so_far())
            else:
                self._crowd.tell(self._put(item))

    async def _listen(self) -> None:
        async with self._house.line.listening.listen(self._session) as heard:
            async for live in heard:
                if live.kind != "text":
                    self._crowd.tell(told_json("doing", {"text": plain(live.text)[:200]}))
                    continue
                before = len(self._saying.text)
                self._saying.heard(live.text)
                text = self._saying.text
                # A page holds so much and no more, and no word without an end; the log tells the rest once it is whole.
                if before < len(text) <= LONGEST_TEXT and is_broken(text):
                    piece = {"id": self.conversation.saying, "at": before, "to": len(text), "text": plain(text[before:])}
                    self._crowd.tell(told_json("say", piece))

    async def _keep_rail(self) -> None:
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            began = time.monotonic()
            with contextlib.suppress(CurtainwallError):
                self._draw_rail()
            # A long log takes long to look at; then it is looked at less often.
            await asyncio.sleep(max(_RAIL_SECONDS, 8 * (time.monotonic() - began)))

    def _draw_rail(self) -> None:
        if not len(self._crowd):
            return
        view = self._house.line.desk.view(self._session)
        for name in RAIL:
            html = draw(f"rail/{name}.html", view=view, csrf="")
            if self._rail.get(name) != html:
                self._rail[name] = html
                self._crowd.tell(told("put", html))
