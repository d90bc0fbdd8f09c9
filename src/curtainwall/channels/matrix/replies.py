"""What a session says, in its room: text as it comes, long text in a thread, and one notice while a model request is retried."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar, assert_never

from curtainwall.channels.asks.event_lines import describe_event
from curtainwall.channels.conversation import StreamedMessage
from curtainwall.channels.matrix.events import table
from curtainwall.channels.matrix.homeserver import HomeserverRefused
from curtainwall.channels.matrix.memory import CHANNEL, Memory, transaction
from curtainwall.channels.matrix.outbox import MatrixOutbox, RoomMessage, pieces, to_html, with_code
from curtainwall.channels.plain import plain, plain_line, short
from curtainwall.channels.ports import ChannelPorts
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
from curtainwall.operations.activity import SessionActivity

ANSWERS: Final = "the model answers again"
GIVEN_UP: Final = "the model is not tried any more"

_LONGEST: Final = 500

Retry = Callable[[Callable[[], Awaitable[str]]], Awaitable[str | None]]
"""Does something until it works, or never will."""


@dataclass(slots=True)
class RetryNotice:
    """The notice of one room.

    INVARIANT: a notice that says that something is tried is remembered until it says what came of it, also over a crash.
    """

    outbox: MatrixOutbox
    memory: Memory
    room: str
    patience: float
    """How many seconds pass before it is worth a word: most of what fails works a moment later."""
    _words: str = ""
    _since: float = 0.0
    _rests_until: float = 0.0

    def hear(self, words: str, now: float) -> None:
        """Take in that it is tried again."""
        self._since = self._since if self._words else now
        self._words = plain_line(words, _LONGEST)

    async def show(self, name: str, now: float) -> None:
        """Say it, or change what was said, where it is time; the name is the request's own."""
        told = table(json.loads(self.memory.get(self._name) or "{}"))
        is_due = now >= self._rests_until and (bool(told) or now - self._since >= self.patience)
        if not self._words or self._words == told.get("text") or not is_due:
            return
        first, words = str(told.get("name") or name), self._words
        if not told:
            # Remembered before it is said: where we die in between, whoever comes next knows that there may be a notice to end.
            await self.memory.set({self._name: json.dumps({"name": first, "text": ""})})
        try:
            event = await self.outbox.say(self.room, first, _notice(words))
            if told:
                await self._change(f"{first} {transaction(words)}", event, words)
            await self.memory.set({self._name: json.dumps({"name": first, "text": words})})
        except (TryLater, HomeserverRefused):
            # Whoever looks later says what is true by then.
            self._rests_until = now + self.patience

    async def end(self, how: str, insist: Retry) -> None:
        """Forget what was heard, and say what came of it, where anything was said."""
        self._words = ""
        await self.settle(how, insist)

    async def settle(self, how: str, insist: Retry) -> None:
        """Say what came of what was said before, where anything was."""
        told = table(json.loads(self.memory.get(self._name) or "{}"))
        if told:
            name, before = str(told["name"]), told["text"]
            text = f"{how}; before: {before}" if before else how
            # Said again under its name, a notice that is there stays as it is and tells its event.
            event = await insist(lambda: self.outbox.say(self.room, name, _notice(text)))
            if event is not None:
                await insist(lambda: self._change(f"{name} ended", event, text))
            await self.memory.set({self._name: None})

    async def _change(self, name: str, event: str, text: str) -> str:
        await self.outbox.change(self.room, name, event, _notice(text))
        return event

    @property
    def _name(self) -> str:
        return f"retrying {self.room}"


def _notice(text: str) -> RoomMessage:
    return RoomMessage(text, html=with_code(text), notice=True)


_TYPING_SECONDS: Final = 30
_LONGEST_PAUSE: Final = 60.0
_HEAD: Final = 1_500
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReplyPace:
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


class RoomReplies:
    """One room's view of one session, from where it was left off.

    INVARIANT: everything that is said has a name made of the turn and its place in it. So the same events, read again after a crash, say
    nothing twice; where we left off is only remembered between turns.
    """

    def __init__(self, line: ChannelPorts, outbox: MatrixOutbox, memory: Memory, room: str, pace: ReplyPace) -> None:
        self._line = line
        self._outbox = outbox
        self._memory = memory
        self._room = room
        self._pace = pace
        self._tale = SessionActivity()
        self._streamed = StreamedMessage()
        self._turn: TurnId | None = None
        self._count = 0
        self._logged = ""
        self._draft: _Draft | None = None
        self._began: float | None = None
        self._busy = asyncio.Lock()
        self._request: str | None = None
        self._retrying = RetryNotice(outbox, memory, room, pace.again)

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
            told = describe_event(event, self._tale)
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
                await self._retrying.settle(GIVEN_UP, retry)
                self._request = event.request
            case ModelResponded() | TextStreamed() | AgentSpoke():
                await self._retrying.end(ANSWERS, retry)
            case ModelFailed() | TurnEnded():
                await self._retrying.end(GIVEN_UP, retry)
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
            self._streamed.add_live(live)
        if logged:
            self._streamed.logged(logged)
        if self._began is None and self._streamed.text:
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
        if self._turn is None or self._began is None or not self._streamed.text.strip():
            return False
        if self._draft is None:
            return self._now() - self._began >= self._pace.first
        return self._streamed.text != self._draft.shown and self._now() - self._draft.at >= self._pace.again

    async def _show_so_far(self) -> None:
        text = self._streamed.text
        words = _words(f"{pieces(text)[0]} …")
        try:
            if self._draft is None:
                # Whoever comes after a crash has to know that the first thing said may not have been the whole.
                await self._memory.set({f"drafted {self._name}": "1"})
                event = await self._outbox.say(self._room, self._name, words)
                self._draft = _Draft(event, text, self._now())
            else:
                await self._outbox.change(self._room, f"{self._name} {_digest(text)}", self._draft.event, words)
                self._draft = replace(self._draft, shown=text, at=self._now())
        except (TryLater, HomeserverRefused):
            # The whole will be said when it is there.
            self._began = self._now() + self._pace.again

    async def _finish(self, text: str) -> None:
        """Say a message that is whole, in the place of what was shown of it."""
        parts = pieces(text, _HEAD)
        more = sum(map(len, parts[1:]))
        first = _words(parts[0] if not more else f"{parts[0]}\n\n… {more} more characters are in the thread")
        if text.strip():
            name = self._name
            event = await retry(lambda: self._outbox.say(self._room, name, first))
            if event and (self._draft is not None or self._memory.get(f"drafted {name}") is not None):
                await retry(lambda: self._outbox.change(self._room, f"{name} whole", event, first))
            for number, part in enumerate(parts[1:] if event else ()):
                words = replace(_words(part), thread=event or "")
                await retry(lambda number=number, words=words: self._outbox.say(self._room, f"{name} part {number}", words))
        self._count += 1
        self._streamed.spoke(text)
        self._draft, self._logged = None, ""
        self._began = self._now() if self._streamed.text else None

    @property
    def _name(self) -> str:
        return f"{self._room} {self._turn} {self._count}"

    async def _remark(self, name: str, text: str) -> None:
        words = RoomMessage(plain(text), html=with_code(plain(text)), notice=True)
        await retry(lambda: self._outbox.say(self._room, f"{self._room} {self._turn} remark {name}", words))

    async def _type(self) -> None:
        shown = False
        while True:
            if self._tale.works or shown:
                await self._outbox.typing(self._room, seconds=_TYPING_SECONDS if self._tale.works else 0)
            shown = self._tale.works
            for _ in range(int(_TYPING_SECONDS / 2 / self._pace.look)):
                await asyncio.sleep(self._pace.look)
                if self._tale.works != shown:
                    break

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


async def retry(act: Callable[[], Awaitable[T]], tries: int | None = None) -> T | None:
    """Do something until it works, with pauses that grow; None where the homeserver will never have it.

    After so many tries, where that is limited, raise `TryLater`.
    """
    pause = 1.0
    while True:
        try:
            return await act()
        except HomeserverRefused:
            return None
        except TryLater:
            tries = None if tries is None else tries - 1
            if tries == 0:
                raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _words(text: str) -> RoomMessage:
    return RoomMessage(plain(text), html=to_html(plain(text)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
