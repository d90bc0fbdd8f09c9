"""A text channel's whole conversation with the house, for any number of places: what people write goes in, what is said comes out.

A channel of one's own needs nothing else: it hands each line to `hear` and tells what `replies` and `asks` yield.
"""

import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
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
    session_stream,
)
from curtainwall.operations.activity import SessionActivity

BoardAt = Callable[[ShownAt], Board]
"""Makes the board of a place."""

_REMEMBERED = 64
_LONGEST_ANSWER = 20_000
_NO_SCREEN = "this place stays with its session; `/new` begins another, and `/resume` goes to one"


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What came of a line: what to say to whoever wrote it, if anything; `again` says that it had been heard before."""

    lines: tuple[str, ...] = ()
    refused: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """Something to tell at a place: the agent's whole message, or a note on what happened.

    `key` is the same whenever this is told again after a crash, so a far side that knows keys can drop the repetition.
    """

    key: str
    kind: Literal["agent", "note"]
    text: str


@dataclass(frozen=True, slots=True)
class ChatPorts:
    """What a chat is given by the house."""

    line: ChannelPorts
    places: Places
    marks: Marks
    board_at: BoardAt
    log_places: LogPlaces = lambda _: ()


class Chat:
    """The conversations of one channel."""

    def __init__(self, channel: str, house: ChatPorts) -> None:
        self.channel = channel
        self._house = house
        self._tales: dict[SessionId, tuple[SessionActivity, int]] = {}

    def who(self, name: str) -> Who:
        """Return somebody on this channel."""
        return Who(name=name, channel=self.channel)

    def place(self, reference: str) -> Route:
        """Return a place on this channel."""
        return Route(channel=self.channel, reference=reference)

    async def hear(self, reference: str, name: str, text: str, message: str) -> ChatReply:
        """Take what somebody wrote at a place; `message` is the channel's own id for it, and the same one is taken once.

        What is raised passes (a full disk, a busy database): nothing was taken, and the channel brings it again.
        """
        if message in self._received_at(reference):
            return ChatReply(again=True)
        who = self.who(name)
        try:
            session = await self._house.places.lead(self.place(reference), who)
            heard = await self._take(reference, session, who, text, message)
        except CommandRefused as refusal:
            heard = ChatReply((plain_line(str(refusal)),), refused=True)
        except Undecided as waits:
            # It is kept under its id, or whoever wrote it is told otherwise: it is not brought again.
            heard = ChatReply((plain_line(str(waits)),))
        kept = [*self._received_at(reference), message][-_REMEMBERED:]
        await self._house.marks.set(self.channel, {f"heard {reference}": json.dumps(kept)})
        return heard

    async def replies(self, reference: str) -> AsyncGenerator[ChatMessage]:
        """Yield for ever what is said at a place, from where it was last told; asking for the next says that the one before was told."""
        place, feed = self.place(reference), self._house.line.feed
        async for names in feed.changes():
            session = self._house.places.session_at(place)
            if session is None or (names and not names & {HOUSE, session_stream(session)}):
                continue
            async with aclosing(self._news(reference, session)) as news:
                async for said in news:
                    yield said

    async def pieces(self, reference: str, session: SessionId) -> AsyncGenerator[str]:
        """Yield the agent's text as it comes; it is a hint, and what `replies` yields in the end is the whole of it."""
        async with self._house.line.listening.listen(session) as live:
            async for said in live:
                if self._house.places.session_at(self.place(reference)) != session:
                    return
                if said.kind == "text":
                    yield said.text

    def asks(self, reference: str) -> AsyncIterator[Card]:
        """Yield for ever the asks that are shown at a place, and how they are settled."""
        return self.board(reference).follow()

    def board(self, reference: str) -> Board:
        """Return the board of a place."""
        return self._house.board_at(ShownAt(self.channel, reference))

    async def _take(self, reference: str, session: SessionId, who: Who, text: str, message: str) -> ChatReply:
        request = self._meant(who, text)
        if isinstance(request, ChatReply):
            return request
        if isinstance(request, Message):
            if not request.text.strip():
                return ChatReply()
            key = f"{self.channel} {reference} {message}"
            id_ = MessageId(hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32])
            await self._house.line.desk.send(session, SendMessage(by=who, message=id_, text=request.text), key)
            return ChatReply()
        outcome = await self._answered(reference, who, request) or await self._control(who).do(session, request)
        if outcome.go_to is not None and outcome.go_to != session:
            await self._move(reference, outcome.go_to, who, session)
        lines = (_NO_SCREEN,) if outcome.quits or outcome.clears else outcome.lines
        return ChatReply(tuple(lines), refused=outcome.refused)

    def _meant(self, who: Who, text: str) -> Request | ChatReply:
        """Return what somebody wants, or why they do not get it: who is no operator may talk, and ask which words there are."""
        try:
            request = parse(text)
        except SlashUsageError as fault:
            request = fault
        is_free = isinstance(request, Message | Help)
        if not is_free and not self._house.places.may_control(who):
            words = f"`{who.name}` is not an operator of `{who.channel}`; start with `//` to send a line that begins with a slash"
            return ChatReply((plain_line(words),), refused=True)
        return ChatReply((plain_line(str(request)),), refused=True) if isinstance(request, SlashUsageError) else request

    async def _answered(self, reference: str, who: Who, request: Request) -> SlashResult | None:
        """Answer or list asks of other sessions that are shown here; None where the request is about the place's own session."""
        board = self.board(reference)
        match request:
            case Approve(approval=None) | Deny(approval=None):
                return None
            case Approve() | Deny():
                assert request.approval is not None
                try:
                    card = board.find(request.approval)
                except AlreadyAnswered as late:
                    return SlashResult((plain_line(str(late)),), refused=True)
                except NotFound:
                    return None
                card = replace(card, joined=up_to(card.joined, request.approval))
                if isinstance(request, Approve):
                    told = await board.answer(card, granted=True, by=who, scope=request.scope)
                else:
                    told = await board.answer(card, granted=False, by=who, reason=request.reason)
                return SlashResult(
                    (plain_line(told.text, _LONGEST_ANSWER),), refused=not told.counted, answered=card.approval if told.counted else None
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
        """Go on in another session: what was said there before is not told again."""
        end = self._house.line.feed.head(session_stream(session))
        await self._house.marks.set(self.channel, {_cursor(reference, session): str(end)})
        await self._house.places.move(self.place(reference), session, who, before)

    async def _news(self, reference: str, session: SessionId) -> AsyncGenerator[ChatMessage]:
        name = _cursor(reference, session)
        after = int(self._house.marks.get(self.channel, name) or 0)
        tale, read = self._tales.pop(session, (SessionActivity(), 0))
        for recorded in self._house.line.feed.read(session_stream(session), min(read, after)):
            said = self._worth_telling(recorded.event, tale) if recorded.seq > after else None
            if recorded.seq > read:
                tale.take(recorded.event)
            if said is not None:
                kind, text = said
                yield ChatMessage(f"{session}-{recorded.seq}", kind, text)
                await self._house.marks.set(self.channel, {name: str(recorded.seq)})
            self._tales[session] = (tale, max(recorded.seq, read))
        self._tales.setdefault(session, (tale, read))

    def _worth_telling(self, event: AnyEvent, before: SessionActivity) -> tuple[Literal["agent", "note"], str] | None:
        match event:
            case AgentSpoke():
                return ("agent", plain(event.text)) if event.text.strip() else None
            case MessageAccepted(role="human") if event.by.channel != self.channel:
                return "note", f"{plain_line(str(event.by))}: {plain(event.text)}"
            case _:
                told = describe_event(event, before) or describe_change(event, Who(name="", channel=self.channel))
                return None if told is None or not told.text or told.tone == "dim" else ("note", told.text)

    def _received_at(self, reference: str) -> list[str]:
        return json.loads(self._house.marks.get(self.channel, f"heard {reference}") or "[]")

    def _control(self, who: Who) -> Control:
        return Control(self._house.line, who, self._house.log_places)


def _listed(board: Board, after: ApprovalId | None) -> Sequence[Card]:
    try:
        return board.cards() if after is None else board.cards_after(after)
    except NotFound:
        return ()


def _cursor(reference: str, session: SessionId) -> str:
    return f"told {reference} {session}"
