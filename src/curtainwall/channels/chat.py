"""A text channel's conversations, for any number of places: takes what people write, and yields what to show them.

A custom channel needs nothing else: it passes each line to `hear` and shows what `replies` and `asks` yield.
"""

import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Literal

from curtainwall.channels.asks.answers import up_to
from curtainwall.channels.asks.board import Board, Card
from curtainwall.channels.asks.cards import ask_in_a_line, whole_card
from curtainwall.channels.asks.event_lines import describe_change, describe_event
from curtainwall.channels.plain import plain, plain_line
from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.slash.control import Control, LogPlaces, SlashResult
from curtainwall.channels.slash.requests import Approve, Clear, Deny, Help, Message, Quit, Request, ShowPending, SlashUsageError
from curtainwall.channels.slash.words import parse
from curtainwall.model import (
    HOUSE,
    AgentSpoke,
    AlreadyAnswered,
    AnyEvent,
    ApprovalId,
    CommandRefused,
    Marks,
    MessageAccepted,
    MessageId,
    NotFound,
    Places,
    Route,
    SendMessage,
    SessionId,
    ShownAt,
    Undecided,
    Who,
    record,
    session_stream,
)
from curtainwall.operations.activity import SessionActivity

BoardAt = Callable[[ShownAt], Board]
"""Returns the board of a place."""

_REMEMBERED = 64
_LONGEST_ANSWER = 20_000
_NO_SCREEN = "this place stays with its session; `/new` begins another, and `/resume` goes to one"


@record
class ChatReply:
    """The reply to a line: what to show its author, if anything; `again` means that the line had been taken before."""

    lines: tuple[str, ...] = ()
    refused: bool = False
    again: bool = False


@record
class ChatMessage:
    """Something to show at a place: a complete message of the agent, or a note about an event.

    `key` stays the same if the message is repeated after a crash, so a far side that knows keys can drop the repetition.
    """

    key: str
    kind: Literal["agent", "note"]
    text: str


@record
class ChatPorts:
    """The parts of the runtime that a chat uses."""

    line: ChannelPorts
    places: Places
    marks: Marks
    board_at: BoardAt
    log_places: LogPlaces = lambda _: ()


class Chat:
    """The conversations of one channel."""

    def __init__(self, channel: str, ports: ChatPorts) -> None:
        self.channel = channel
        self._ports = ports
        self._activities: dict[SessionId, tuple[SessionActivity, int]] = {}

    def who(self, name: str) -> Who:
        """Return a person on this channel."""
        return Who(name=name, channel=self.channel)

    def place(self, reference: str) -> Route:
        """Return a place on this channel."""
        return Route(channel=self.channel, reference=reference)

    async def receive(self, reference: str, name: str, text: str, message: str) -> ChatReply:
        """Take a line that a person wrote at a place; `message` is the channel's id for it, and each id is taken once.

        Errors raised here are temporary (a full disk, a busy database): nothing was taken, and the channel should deliver the line again.
        """
        if message in self._received_at(reference):
            return ChatReply(again=True)
        who = self.who(name)
        try:
            session = await self._ports.places.open_at(self.place(reference), who)
            reply = await self._take(reference, session, who, text, message)
        except CommandRefused as refusal:
            reply = ChatReply((plain_line(str(refusal)),), refused=True)
        except Undecided as pending:
            # The message is stored under its id, or its author gets an error; it must not be delivered again.
            reply = ChatReply((plain_line(str(pending)),))
        received = [*self._received_at(reference), message][-_REMEMBERED:]
        await self._ports.marks.set(self.channel, {f"heard {reference}": json.dumps(received)})
        return reply

    async def replies(self, reference: str) -> AsyncGenerator[ChatMessage]:
        """Yield what to show at a place, forever, from where it stopped; asking for the next message confirms the previous one."""
        place, feed = self.place(reference), self._ports.line.feed
        async for names in feed.changes():
            session = self._ports.places.session_at(place)
            if session is None or (names and not names & {HOUSE, session_stream(session)}):
                continue
            async with aclosing(self._new_messages(reference, session)) as messages:
                async for message in messages:
                    yield message

    async def pieces(self, reference: str, session: SessionId) -> AsyncGenerator[str]:
        """Yield the agent's text as it streams; it is provisional, and `replies` yields the complete message."""
        async with self._ports.line.live.listen(session) as live:
            async for piece in live:
                if self._ports.places.session_at(self.place(reference)) != session:
                    return
                if piece.kind == "text":
                    yield piece.text

    def asks(self, reference: str) -> AsyncIterator[Card]:
        """Yield the asks shown at a place and how they are settled, forever."""
        return self.board(reference).follow()

    def board(self, reference: str) -> Board:
        """Return the board of a place."""
        return self._ports.board_at(ShownAt(self.channel, reference))

    async def _take(self, reference: str, session: SessionId, who: Who, text: str, message: str) -> ChatReply:
        request = self._parse(who, text)
        if isinstance(request, ChatReply):
            return request
        if isinstance(request, Message):
            if not request.text.strip():
                return ChatReply()
            key = f"{self.channel} {reference} {message}"
            id_ = MessageId(hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32])
            await self._ports.line.desk.send(session, SendMessage(by=who, message=id_, text=request.text), key)
            return ChatReply()
        outcome = await self._answer_elsewhere(reference, who, request) or await self._control(who).do(session, request)
        if outcome.go_to is not None and outcome.go_to != session:
            await self._move(reference, outcome.go_to, who, session)
        lines = (_NO_SCREEN,) if outcome.quits or outcome.clears else outcome.lines
        return ChatReply(tuple(lines), refused=outcome.refused)

    def _parse(self, who: Who, text: str) -> Request | ChatReply:
        """Return the parsed request, or a refusal: people who are not operators may only talk and use `/help`."""
        try:
            request = parse(text)
        except SlashUsageError as error:
            request = error
        is_free = isinstance(request, Message | Help)
        if not is_free and not self._ports.places.may_control(who):
            words = f"`{who.name}` is not an operator of `{who.channel}`; start with `//` to send a line that begins with a slash"
            return ChatReply((plain_line(words),), refused=True)
        return ChatReply((plain_line(str(request)),), refused=True) if isinstance(request, SlashUsageError) else request

    async def _answer_elsewhere(self, reference: str, who: Who, request: Request) -> SlashResult | None:
        """Answer or list asks of other sessions shown here; None if the request is about the place's own session."""
        board = self.board(reference)
        match request:
            case Approve(approval=None) | Deny(approval=None):
                return None
            case Approve() | Deny():
                assert request.approval is not None
                try:
                    card = board.find(request.approval)
                except AlreadyAnswered as error:
                    return SlashResult((plain_line(str(error)),), refused=True)
                except NotFound:
                    return None
                card = replace(card, joined=up_to(card.joined, request.approval))
                if isinstance(request, Approve):
                    result = await board.answer(card, granted=True, by=who, scope=request.scope)
                else:
                    result = await board.answer(card, granted=False, by=who, reason=request.reason)
                return SlashResult(
                    (plain_line(result.text, _LONGEST_ANSWER),),
                    refused=not result.counted,
                    answered=card.approval if result.counted else None,
                )
            case ShowPending(approval=None):
                lines = [f"{card.tag} {ask_in_a_line(card.ask, name=card.newest)}" for card in _listed(board, request.after)]
                return SlashResult(tuple(lines)) if lines else None
            case ShowPending():
                assert request.approval is not None
                try:
                    card = board.find(request.approval)
                except (NotFound, AlreadyAnswered):
                    return None
                return SlashResult((card.tag, *(line.text for line in whole_card(card.ask))))
            case Quit() | Clear():
                return SlashResult((_NO_SCREEN,))
            case _:
                return None

    async def _move(self, reference: str, session: SessionId, who: Who, before: SessionId) -> None:
        """Continue in another session, without repeating its earlier messages."""
        end = self._ports.line.feed.head(session_stream(session))
        await self._ports.marks.set(self.channel, {_cursor(reference, session): str(end)})
        await self._ports.places.move(self.place(reference), session, who, before)

    async def _new_messages(self, reference: str, session: SessionId) -> AsyncGenerator[ChatMessage]:
        name = _cursor(reference, session)
        after = int(self._ports.marks.get(self.channel, name) or 0)
        activity, read = self._activities.pop(session, (SessionActivity(), 0))
        for recorded in self._ports.line.feed.read(session_stream(session), min(read, after)):
            message = self._message_for(recorded.event, activity) if recorded.seq > after else None
            if recorded.seq > read:
                activity.take(recorded.event)
            if message is not None:
                kind, text = message
                yield ChatMessage(f"{session}-{recorded.seq}", kind, text)
                await self._ports.marks.set(self.channel, {name: str(recorded.seq)})
            self._activities[session] = (activity, max(recorded.seq, read))
        self._activities.setdefault(session, (activity, read))

    def _message_for(self, event: AnyEvent, before: SessionActivity) -> tuple[Literal["agent", "note"], str] | None:
        match event:
            case AgentSpoke():
                return ("agent", plain(event.text)) if event.text.strip() else None
            case MessageAccepted(role="human") if event.by.channel != self.channel:
                return "note", f"{plain_line(str(event.by))}: {plain(event.text)}"
            case _:
                line = describe_event(event, before) or describe_change(event, Who(name="", channel=self.channel))
                return None if line is None or not line.text or line.tone == "dim" else ("note", line.text)

    def _received_at(self, reference: str) -> list[str]:
        return json.loads(self._ports.marks.get(self.channel, f"heard {reference}") or "[]")

    def _control(self, who: Who) -> Control:
        return Control(self._ports.line, who, self._ports.log_places)


def _listed(board: Board, after: ApprovalId | None) -> Sequence[Card]:
    try:
        return board.cards() if after is None else board.cards_after(after)
    except NotFound:
        return ()


def _cursor(reference: str, session: SessionId) -> str:
    return f"told {reference} {session}"
