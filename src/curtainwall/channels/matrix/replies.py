"""A session's replies in its room: text as it streams, long text in a thread, and one notice while a model request is retried."""

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
    record,
    session_stream,
)
from curtainwall.operations.activity import SessionActivity

ANSWERS: Final = "the model answers again"
GIVEN_UP: Final = "the model is not tried any more"

_LONGEST: Final = 500

Retry = Callable[[Callable[[], Awaitable[str]]], Awaitable[str | None]]
"""Repeats an action until it succeeds, or until it is refused for good."""


@dataclass(slots=True)
class RetryNotice:
    """The retry notice of one room.

    INVARIANT: a notice that says something is retried is remembered until it says how that ended, even across a crash.
    """

    outbox: MatrixOutbox
    memory: Memory
    room: str
    patience: float
    """Seconds before a retry is worth a notice: most failures pass in a moment."""
    _text: str = ""
    _since: float = 0.0
    _rests_until: float = 0.0

    def note(self, words: str, now: float) -> None:
        """Record that the request is being retried."""
        self._since = self._since if self._text else now
        self._text = plain_line(words, _LONGEST)

    async def show(self, name: str, now: float) -> None:
        """Post the notice or update it, if it is time; the name belongs to the request."""
        stored = table(json.loads(self.memory.get(self._name) or "{}"))
        is_due = now >= self._rests_until and (bool(stored) or now - self._since >= self.patience)
        if not self._text or self._text == stored.get("text") or not is_due:
            return
        first, words = str(stored.get("name") or name), self._text
        if not stored:
            # Recorded before it is sent: after a crash in between, the next run knows that there may be a notice to end.
            await self.memory.set({self._name: json.dumps({"name": first, "text": ""})})
        try:
            event = await self.outbox.say(self.room, first, _notice(words))
            if stored:
                await self._change(f"{first} {transaction(words)}", event, words)
            await self.memory.set({self._name: json.dumps({"name": first, "text": words})})
        except (TryLater, HomeserverRefused):
            # A later attempt says what is true by then.
            self._rests_until = now + self.patience

    async def end(self, how: str, retry_until_done: Retry) -> None:
        """Forget the recorded retry, and end the notice if one was posted."""
        self._text = ""
        await self.settle(how, retry_until_done)

    async def settle(self, how: str, retry_until_done: Retry) -> None:
        """Update the notice with how the retries ended, if one was posted."""
        stored = table(json.loads(self.memory.get(self._name) or "{}"))
        if stored:
            name, before = str(stored["name"]), stored["text"]
            text = f"{how}; before: {before}" if before else how
            # Sending again under the same name leaves an existing notice unchanged and returns its event.
            event = await retry_until_done(lambda: self.outbox.say(self.room, name, _notice(text)))
            if event is not None:
                await retry_until_done(lambda: self._change(f"{name} ended", event, text))
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


@record
class ReplyPace:
    """How often to show a message that is still streaming: first after a moment, then every few seconds."""

    first: float = 1.0
    again: float = 2.5
    look: float = 0.25


@dataclass(slots=True)
class _Draft:
    """A message that was shown before it was complete."""

    event: str
    shown: str
    at: float


class RoomReplies:
    """One room's view of one session, continued from where it stopped.

    INVARIANT: every message has a name made of the turn and its position in it. Reading the same events again after a crash therefore sends
    nothing twice. The position in the log is only stored between turns.
    """

    def __init__(self, line: ChannelPorts, outbox: MatrixOutbox, memory: Memory, room: str, pace: ReplyPace) -> None:
        self._line = line
        self._outbox = outbox
        self._memory = memory
        self._room = room
        self._pace = pace
        self._activity = SessionActivity()
        self._streamed = StreamedMessage()
        self._turn: TurnId | None = None
        self._count = 0
        self._logged = ""
        self._draft: _Draft | None = None
        self._started: float | None = None
        self._busy = asyncio.Lock()
        self._request: str | None = None
        self._retrying = RetryNotice(outbox, memory, room, pace.again)

    async def run(self, session: SessionId) -> None:
        """Post what happens in a session until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(session))
            tasks.create_task(self._listen(session))
            tasks.create_task(self._show())
            tasks.create_task(self._type())

    def _cursor(self, session: SessionId) -> int:
        stored = table(json.loads(self._memory.get(f"cursor {self._room}") or "{}"))
        seq = stored.get("seq")
        return seq if stored.get("session") == session and isinstance(seq, int) else 0

    async def _follow(self, session: SessionId) -> None:
        async for recorded in self._line.feed.follow(session_stream(session), self._cursor(session)):
            event = recorded.event
            line = describe_event(event, self._activity)
            self._activity.take(event)
            async with self._busy:
                await self._take(event)
                if line is not None and line.tone in ("warn", "bad") and line.text:
                    await self._remark(f"{session} {recorded.seq}", line.text)
                if isinstance(event, MessageAccepted) and event.role == "human" and event.by.channel != CHANNEL:
                    await self._remark(f"{session} {recorded.seq}", short(f"{event.by}: {event.text}", 500))
            if self._activity.turn is None:
                await self._store_cursor(session, recorded.seq)

    async def _take(self, event: AnyEvent) -> None:
        if isinstance(event, TurnEvent | SpeechEvent | ModelEvent):
            await self._take_retries(event)
            await self._take_text(event)

    async def _take_retries(self, event: TurnEvent | SpeechEvent | ModelEvent) -> None:
        match event:
            case ModelRequested():
                # Retries of an earlier session in this room are over. Live text may be ahead of the log, so what was recorded stays.
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

    async def _take_text(self, event: TurnEvent | SpeechEvent | ModelEvent) -> None:
        match event:
            case TurnStarted():
                # Live text may be ahead of the log and already belong to this turn.
                self._turn, self._count, self._logged = event.turn, 0, ""
            case TextStreamed():
                self._logged += event.text
                self._add_text(logged=event.text)
            case AgentSpoke():
                await self._finish(event.text)
            case ModelFailed() | TurnEnded():
                if self._logged:
                    await self._finish(self._logged)
            case TurnResumed() | InterruptAsked() | ModelRequested() | ModelResponded():
                pass
            case _:
                assert_never(event)

    async def _store_cursor(self, session: SessionId, seq: int) -> None:
        """Record how far everything is posted, and forget the names that are no longer needed."""
        values: dict[str, str | None] = {f"cursor {self._room}": json.dumps({"session": session, "seq": seq})}
        if self._turn is not None:
            values |= dict.fromkeys(self._memory.named(f"sent {self._room} {self._turn} "))
            values |= dict.fromkeys(self._memory.named(f"drafted {self._room} {self._turn} "))
            self._turn = None
        await self._memory.set(values)

    # A message that is still coming

    async def _listen(self, session: SessionId) -> None:
        async with self._line.live.listen(session) as lives:
            async for live in lives:
                if live.kind == "text":
                    self._add_text(live=live.text)
                elif live.kind == "again":
                    self._retrying.note(live.text, self._now())

    def _add_text(self, *, live: str = "", logged: str = "") -> None:
        if live:
            self._streamed.add_live(live)
        if logged:
            self._streamed.logged(logged)
        if self._started is None and self._streamed.text:
            self._started = self._now()

    async def _show(self) -> None:
        while True:
            await asyncio.sleep(self._pace.look)
            async with self._busy:
                if self._is_due():
                    await self._show_so_far()
                if self._turn is not None and self._request is not None:
                    await self._retrying.show(f"{self._room} {self._turn} request {self._request}", self._now())

    def _is_due(self) -> bool:
        if self._turn is None or self._started is None or not self._streamed.text.strip():
            return False
        if self._draft is None:
            return self._now() - self._started >= self._pace.first
        return self._streamed.text != self._draft.shown and self._now() - self._draft.at >= self._pace.again

    async def _show_so_far(self) -> None:
        text = self._streamed.text
        message = _rendered(f"{pieces(text)[0]} …")
        try:
            if self._draft is None:
                # After a crash, the next run must know that the first message may not have been complete.
                await self._memory.set({f"drafted {self._name}": "1"})
                event = await self._outbox.say(self._room, self._name, message)
                self._draft = _Draft(event, text, self._now())
            else:
                await self._outbox.change(self._room, f"{self._name} {_digest(text)}", self._draft.event, message)
                self._draft = replace(self._draft, shown=text, at=self._now())
        except (TryLater, HomeserverRefused):
            # The complete message will be sent when it is there.
            self._started = self._now() + self._pace.again

    async def _finish(self, text: str) -> None:
        """Send a complete message, replacing what was shown of it so far."""
        parts = pieces(text, _HEAD)
        more = sum(map(len, parts[1:]))
        first = _rendered(parts[0] if not more else f"{parts[0]}\n\n… {more} more characters are in the thread")
        if text.strip():
            name = self._name
            event = await retry(lambda: self._outbox.say(self._room, name, first))
            if event and (self._draft is not None or self._memory.get(f"drafted {name}") is not None):
                await retry(lambda: self._outbox.change(self._room, f"{name} whole", event, first))
            for number, part in enumerate(parts[1:] if event else ()):
                message = replace(_rendered(part), thread=event or "")
                await retry(lambda number=number, message=message: self._outbox.say(self._room, f"{name} part {number}", message))
        self._count += 1
        self._streamed.spoke(text)
        self._draft, self._logged = None, ""
        self._started = self._now() if self._streamed.text else None

    @property
    def _name(self) -> str:
        return f"{self._room} {self._turn} {self._count}"

    async def _remark(self, name: str, text: str) -> None:
        message = RoomMessage(plain(text), html=with_code(plain(text)), notice=True)
        await retry(lambda: self._outbox.say(self._room, f"{self._room} {self._turn} remark {name}", message))

    async def _type(self) -> None:
        shown = False
        while True:
            if self._activity.works or shown:
                await self._outbox.typing(self._room, seconds=_TYPING_SECONDS if self._activity.works else 0)
            shown = self._activity.works
            for _ in range(int(_TYPING_SECONDS / 2 / self._pace.look)):
                await asyncio.sleep(self._pace.look)
                if self._activity.works != shown:
                    break

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


async def retry(action: Callable[[], Awaitable[T]], tries: int | None = None) -> T | None:
    """Repeat an action with growing pauses until it succeeds; return None if the homeserver refuses it for good.

    With `tries`, raise `TryLater` after that many attempts.
    """
    pause = 1.0
    while True:
        try:
            return await action()
        except HomeserverRefused:
            return None
        except TryLater:
            tries = None if tries is None else tries - 1
            if tries == 0:
                raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _rendered(text: str) -> RoomMessage:
    return RoomMessage(plain(text), html=to_html(plain(text)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
