"""What a session says, in its room: text as it comes at a humane rate, long text in a thread, and what people there should know."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar, assert_never

from curtainwall.channels.asks.event_lines import tell
from curtainwall.channels.line import Line
from curtainwall.channels.matrix.events import table
from curtainwall.channels.matrix.homeserver import Refused
from curtainwall.channels.matrix.markdown import to_html, with_code
from curtainwall.channels.matrix.memory import CHANNEL, Memory
from curtainwall.channels.matrix.outbox import Speaking, Words, pieces
from curtainwall.channels.matrix.retries import ANSWERS, GIVEN_UP, Retrying
from curtainwall.channels.text.message import Saying
from curtainwall.channels.text.plain import plain, short
from curtainwall.model import (
    AgentSpoke,
    AnyEvent,
    InterruptAsked,
    MessageAccepted,
    ModelEvent,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    SessionId,
    SpeechEvent,
    TextStreamed,
    TryLater,
    TurnEnded,
    TurnEvent,
    TurnId,
    TurnResumed,
    TurnStarted,
    session_stream,
)
from curtainwall.operations.tale import Tale

_TYPING_SECONDS: Final = 30
_LONGEST_PAUSE: Final = 60.0
_HEAD: Final = 1_500
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a message that is still coming is shown: first after a moment, then every few seconds."""

    first: float = 1.0
    again: float = 2.5
    look: float = 0.25


@dataclass(slots=True)
class _Draft:
    """A message that was shown before it was whole."""

    event: str
    shown: str
    at: float


class Replies:
    """One room's view of one session, from where it was left off.

    INVARIANT: everything that is said has a name made of the turn and its place in it. So the same events, read again after a crash, say
    nothing twice; where we left off is only remembered between turns.
    """

    def __init__(self, line: Line, speaking: Speaking, memory: Memory, room: str, pace: Pace) -> None:
        self._line = line
        self._speaking = speaking
        self._memory = memory
        self._room = room
        self._pace = pace
        self._tale = Tale()
        self._saying = Saying()
        self._turn: TurnId | None = None
        self._count = 0
        self._logged = ""
        self._draft: _Draft | None = None
        self._began: float | None = None
        self._busy = asyncio.Lock()
        self._request: str | None = None
        self._retrying = Retrying(speaking, memory, room, pace.again)

    async def run(self, session: SessionId) -> None:
        """Tell what happens in a session until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(session))
            tasks.create_task(self._listen(session))
            tasks.create_task(self._show())
            tasks.create_task(self._type())

    def _cursor(self, session: SessionId) -> int:
        told = table(json.loads(self._memory.get(f"cursor {self._room}") or "{}"))
        seq = told.get("seq")
        return seq if told.get("session") == session and isinstance(seq, int) else 0

    async def _follow(self, session: SessionId) -> None:
        async for recorded in self._line.feed.follow(session_stream(session), self._cursor(session)):
            event = recorded.event
            told = tell(event, self._tale)
            self._tale.take(event)
            async with self._busy:
                await self._take(event)
                if told is not None and told.tone in ("warn", "bad") and told.text:
                    await self._remark(f"{session} {recorded.seq}", told.text)
                if isinstance(event, MessageAccepted) and event.role == "human" and event.by.channel != CHANNEL:
                    await self._remark(f"{session} {recorded.seq}", short(f"{event.by}: {event.text}", 500))
            if self._tale.turn is None:
                await self._leave_off(session, recorded.seq)

    async def _take(self, event: AnyEvent) -> None:
        if isinstance(event, TurnEvent | SpeechEvent | ModelEvent):
            await self._take_retries(event)
            await self._take_words(event)

    async def _take_retries(self, event: TurnEvent | SpeechEvent | ModelEvent) -> None:
        match event:
            case ModelRequested():
                # Whatever was tried before, in another session of this room, is not any more; what was heard may be ahead of the log.
                await self._retrying.settle(GIVEN_UP, insist)
                self._request = event.request
            case ModelResponded() | TextStreamed() | AgentSpoke():
                await self._retrying.end(ANSWERS, insist)
            case ModelFailed() | TurnEnded():
                await self._retrying.end(GIVEN_UP, insist)
            case TurnStarted() | TurnResumed() | InterruptAsked():
                pass
            case _:
                assert_never(event)

    async def _take_words(self, event: TurnEvent | SpeechEvent | ModelEvent) -> None:
        match event:
            case TurnStarted():
                # What is heard live may be ahead of the log, and belong to this turn already.
                self._turn, self._count, self._logged = event.turn, 0, ""
            case TextStreamed():
                self._logged += event.text
                self._hear(logged=event.text)
            case AgentSpoke():
                await self._finish(event.text)
            case ModelFailed() | TurnEnded():
                if self._logged:
                    await self._finish(self._logged)
            case TurnResumed() | InterruptAsked() | ModelRequested() | ModelResponded():
                pass
            case _:
                assert_never(event)

    async def _leave_off(self, session: SessionId, seq: int) -> None:
        """Remember how far everything is told, and forget the names that are no longer needed."""
        told: dict[str, str | None] = {f"cursor {self._room}": json.dumps({"session": session, "seq": seq})}
        if self._turn is not None:
            told |= dict.fromkeys(self._memory.named(f"sent {self._room} {self._turn} "))
            told |= dict.fromkeys(self._memory.named(f"drafted {self._room} {self._turn} "))
            self._turn = None
        await self._memory.set(told)

    # A message that is still coming

    async def _listen(self, session: SessionId) -> None:
        async with self._line.listening.listen(session) as lives:
            async for live in lives:
                if live.kind == "text":
                    self._hear(live=live.text)
                elif live.kind == "again":
                    self._retrying.hear(live.text, self._now())

    def _hear(self, *, live: str = "", logged: str = "") -> None:
        if live:
            self._saying.heard(live)
        if logged:
            self._saying.logged(logged)
        if self._began is None and self._saying.text:
            self._began = self._now()

    async def _show(self) -> None:
        while True:
            await asyncio.sleep(self._pace.look)
            async with self._busy:
                if self._is_due():
                    await self._show_so_far()
                if self._turn is not None and self._request is not None:
                    await self._retrying.show(f"{self._room} {self._turn} request {self._request}", self._now())

    def _is_due(self) -> bool:
        if self._turn is None or self._began is None or not self._saying.text.strip():
            return False
        if self._draft is None:
            return self._now() - self._began >= self._pace.first
        return self._saying.text != self._draft.shown and self._now() - self._draft.at >= self._pace.again

    async def _show_so_far(self) -> None:
        text = self._saying.text
        words = _words(f"{pieces(text)[0]} …")
        try:
            if self._draft is None:
                # Whoever comes after a crash has to know that the first thing said may not have been the whole.
                await self._memory.set({f"drafted {self._name}": "1"})
                event = await self._speaking.say(self._room, self._name, words)
                self._draft = _Draft(event, text, self._now())
            else:
                await self._speaking.change(self._room, f"{self._name} {_digest(text)}", self._draft.event, words)
                self._draft = replace(self._draft, shown=text, at=self._now())
        except (TryLater, Refused):
            # The whole will be said when it is there.
            self._began = self._now() + self._pace.again

    async def _finish(self, text: str) -> None:
        """Say a message that is whole, in the place of what was shown of it."""
        parts = pieces(text, _HEAD)
        more = sum(map(len, parts[1:]))
        first = _words(parts[0] if not more else f"{parts[0]}\n\n… {more} more characters are in the thread")
        if text.strip():
            name = self._name
            event = await insist(lambda: self._speaking.say(self._room, name, first))
            if event and (self._draft is not None or self._memory.get(f"drafted {name}") is not None):
                await insist(lambda: self._speaking.change(self._room, f"{name} whole", event, first))
            for number, part in enumerate(parts[1:] if event else ()):
                words = replace(_words(part), thread=event or "")
                await insist(lambda number=number, words=words: self._speaking.say(self._room, f"{name} part {number}", words))
        self._count += 1
        self._saying.spoke(text)
        self._draft, self._logged = None, ""
        self._began = self._now() if self._saying.text else None

    @property
    def _name(self) -> str:
        return f"{self._room} {self._turn} {self._count}"

    async def _remark(self, name: str, text: str) -> None:
        words = Words(plain(text), html=with_code(plain(text)), notice=True)
        await insist(lambda: self._speaking.say(self._room, f"{self._room} {self._turn} remark {name}", words))

    async def _type(self) -> None:
        shown = False
        while True:
            if self._tale.works or shown:
                await self._speaking.typing(self._room, seconds=_TYPING_SECONDS if self._tale.works else 0)
            shown = self._tale.works
            for _ in range(int(_TYPING_SECONDS / 2 / self._pace.look)):
                await asyncio.sleep(self._pace.look)
                if self._tale.works != shown:
                    break

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


async def insist(act: Callable[[], Awaitable[T]], tries: int | None = None) -> T | None:
    """Do something until it works, with pauses that grow; None where the homeserver will never have it.

    After so many tries, where that is limited, raise `TryLater`.
    """
    pause = 1.0
    while True:
        try:
            return await act()
        except Refused:
            return None
        except TryLater:
            tries = None if tries is None else tries - 1
            if tries == 0:
                raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _words(text: str) -> Words:
    return Words(plain(text), html=to_html(plain(text)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
