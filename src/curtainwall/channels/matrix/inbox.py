"""Incoming events in rooms: messages go to the room's session, operators' control words are executed, and strangers are refused."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from curtainwall.channels.asks.answers import up_to
from curtainwall.channels.asks.board import AskDesk, Board
from curtainwall.channels.asks.cards import whole_card
from curtainwall.channels.matrix.asks import NO, YES, PostedAsk, RoomAsks, ask_list
from curtainwall.channels.matrix.events import Attachment, Edit, EncryptedEvent, Event, EventHead, Reaction, Redaction, TextMessage
from curtainwall.channels.matrix.memory import CHANNEL, Memory
from curtainwall.channels.matrix.outbox import MatrixOutbox, RoomMessage, pieces, with_code
from curtainwall.channels.matrix.redactions import Redactions
from curtainwall.channels.matrix.replies import retry
from curtainwall.channels.plain import plain_line
from curtainwall.channels.ports import ChannelPorts
from curtainwall.channels.slash import WORDS, Approve, Control, Deny, LogPlaces, Request, SlashResult, nearest, parse
from curtainwall.channels.slash.requests import Fork, New, Reset, ShowPending, SlashUsageError
from curtainwall.model import (
    AnswerApproval,
    ApprovalId,
    CommandRefused,
    CurtainwallError,
    Desk,
    GrantScope,
    MessageId,
    SendMessage,
    SessionId,
    TryLater,
    Who,
    record,
    session_stream,
)

_LONGEST_LIST: Final = 60_000
_LONGEST_WHO: Final = 1_000
_LONGEST_NAME: Final = 80
_MOST_REFUSED: Final = 10
_TRIES: Final = 3
_ALIKE: Final = 0.75


class RoomRouter(Protocol):
    """Maps rooms to sessions."""

    def session_at(self, room: str) -> SessionId | None:
        """Return the session that a room leads to, or None."""
        ...

    async def enter(self, room: str, by: Who, called: str) -> SessionId:
        """Return the session that a room leads to; if there is none or it is closed, open one named `called`."""
        ...

    async def lead(self, room: str, session: SessionId, by: Who) -> None:
        """Make a room lead to another session, and show that session's asks there."""
        ...

    def desk(self, key: str) -> Desk:
        """Return a desk that executes the same command under the same key once."""
        ...

    def board(self, room: str, desk: AskDesk | None = None) -> Board:
        """Return the asks that are shown in a room, answered through a desk."""
        ...


@record
class People:
    """Who may do what: operators control, talkers talk; `*` is everyone in the room, `*:server` everyone on a server."""

    own: str
    operators: frozenset[str]
    talkers: frozenset[str]
    trusts_homeserver: bool

    def may_talk(self, user: str) -> bool:
        """Tell whether a user's messages go to the session."""
        return user in self.operators or not self.talkers.isdisjoint({user, "*", f"*:{user.partition(':')[2]}"})

    def may_control(self, user: str) -> bool:
        """Tell whether a user may answer asks and use control words."""
        return user in self.operators


class RoomInbox:
    """Handles the events of all rooms, one after the other, each once.

    INVARIANT: every action for an event carries the event's id, so repeating it after a crash has no further effect.
    """

    def __init__(
        self, router: RoomRouter, line: ChannelPorts, people: People, outbox: MatrixOutbox, memory: Memory, log_places: LogPlaces
    ) -> None:
        self._router = router
        self._line = line
        self._people = people
        self._outbox = outbox
        self._memory = memory
        self._log_places = log_places
        self._redactions = Redactions(router, line, memory, people.operators)
        self._refused: Counter[str] = Counter()
        self.room_names: dict[str, str] = {}
        """The name of each room that has one."""

    async def take(self, event: Event, *, encrypted: bool, room_asks: RoomAsks | None) -> None:
        """Handle an event; raise `TryLater` if it has to be delivered again."""
        try:
            await self._take(event, encrypted=encrypted, room_asks=room_asks)
        except TryLater:
            raise
        except CurtainwallError as refusal:
            await self._reply(event.head, plain_line(str(refusal)))

    async def _take(self, event: Event, *, encrypted: bool, room_asks: RoomAsks | None) -> None:
        if event.head.sender == self._people.own:
            return
        if not self._people.may_talk(event.head.sender):
            if isinstance(event, TextMessage | Attachment):
                await self._turn_away(event)
            return
        match event:
            case TextMessage() if encrypted and not event.sealed:
                words = "this came unencrypted into an encrypted room, where anybody on the way could have written it; it was not taken"
                await self.refuse(event.head, words)
            case TextMessage():
                await self._on_text(event, room_asks)
            case Edit():
                await self._on_edit(event)
            case Redaction():
                if words := await self._redactions.take(event):
                    await self._reply(event.head, words, event.about)
            case Reaction():
                await self._on_reaction(event, room_asks)
            case Attachment():
                await self.refuse(event.head, f"a {event.kind} cannot be taken here; write what it is about")
            case EncryptedEvent():
                pass

    async def _turn_away(self, event: TextMessage | Attachment) -> None:
        """Tell a stranger once that their messages are ignored, and once more for each ask that they try to answer."""
        head, ask = event.head, self._answered_by(event)
        words = f"{head.sender} is not on the list of people who may talk here; nothing of theirs is taken"
        if ask is not None:
            words = f"only operators may answer, and {head.sender} is none; `{ask}` is as open as before"
        name = f"stranger {head.room} {head.sender}{f' {ask}' if ask else ''}"
        if self._memory.get(name) is None:
            await self.refuse(head, words)
            await self._memory.set({name: head.event})

    def _answered_by(self, event: TextMessage | Attachment) -> ApprovalId | None:
        """Return the open ask of this room that a message tries to answer."""
        try:
            request = parse(event.text) if isinstance(event, TextMessage) else None
            if not isinstance(request, Approve | Deny) or request.approval is None:
                return None
            return self._router.board(event.head.room).find(request.approval).approval
        except (CommandRefused, SlashUsageError):
            return None

    async def _on_edit(self, edit: Edit) -> None:
        """Say once per message that edits are ignored, so that its author does not wait for an effect."""
        name = f"edited {edit.head.room} {edit.about}"
        if self._memory.get(name) is None:
            words = "a change of what was written is not taken; write it as a new message"
            await self.refuse(edit.head, words, about=edit.about)
            await self._memory.set({name: edit.head.event})

    async def _on_text(self, message: TextMessage, room_asks: RoomAsks | None) -> None:
        head, text = message.head, message.text
        if not _is_control(text):
            await self._talk(message, text.strip()[1:] if text.strip().startswith("//") else text)
            await self._say_how_to_answer(message, room_asks)
        elif not self._people.may_control(head.sender):
            await self.refuse(head, f"only operators may do that, and {head.sender} is none; `//` before it sends it as a message")
        elif not message.sealed and not self._people.trusts_homeserver:
            words = "slash words count in encrypted rooms alone: here the homeserver could write them in your name"
            await self.refuse(head, f"{words} (`trust-homeserver` in the configuration allows it)")
        else:
            await self._control(head, text)

    async def _talk(self, event: TextMessage, text: str) -> None:
        head, by = event.head, _who(event.head)
        session = await self._enter(head.room, by)
        # Messages are accepted on the homeserver's word, but nothing is approved because of them.
        proven = event.sealed or self._people.trusts_homeserver
        await self._router.desk(_key(head)).send(session, SendMessage(by=by, message=_message_id(head), text=text, proven=proven))

    async def _say_how_to_answer(self, message: TextMessage, room_asks: RoomAsks | None) -> None:
        """Tell an operator who replies to an ask's card in plain words that this does not answer it."""
        is_meant = room_asks is not None and message.about and self._people.may_control(message.head.sender)
        posted = await room_asks.posted(message.about) if room_asks is not None and is_meant else None
        if posted is None:
            return
        with suppress(CommandRefused):
            card = self._router.board(message.head.room).find(posted.approval, posted.session)
            how = f"`/approve {card.newest}` or `/deny {card.newest}` does"
            await self.refuse(message.head, f"this went to the agent as a message and answers nothing; {how}")

    async def _enter(self, room: str, by: Who) -> SessionId:
        return await self._router.enter(room, by, plain_line(self.room_names.get(room, "") or by.name, _LONGEST_NAME))

    async def _control(self, head: EventHead, text: str) -> None:
        request = parse(text)
        match request:
            case Approve(approval=approval) if approval is not None:
                await self._answer(head, approval, granted=True, scope=request.scope)
            case Deny(approval=approval) if approval is not None:
                await self._answer(head, approval, granted=False, reason=request.reason)
            case Approve() | Deny():
                await self._reply(head, "say which ask: `/approve ID` or `/deny ID`; `/pending` lists them")
            case ShowPending(approval=None):
                board = self._router.board(head.room)
                cards = board.cards() if request.after is None else board.cards_after(request.after)
                await self._reply(head, ask_list(cards, head.room, _LONGEST_LIST))
            case ShowPending(approval=approval):
                await self._whole_ask(head, approval or "")
            case _:
                await self._do(head, request)

    async def _do(self, head: EventHead, request: Request) -> None:
        by, mark = _who(head), f"doing {head.event}"
        if isinstance(request, New | Reset | Fork):
            if self._memory.get(mark) is not None:
                await self._reply(head, "a restart came in between, and it is unknown whether this was done; `/sessions` shows it")
                return
            await self._memory.set({mark: "1"})
        session = await self._enter(head.room, by)
        desk = self._router.desk(_key(head))
        outcome = await Control(replace(self._line, desk=desk), by, self._log_places).do(session, request)
        if outcome.go_to is not None:
            # What was said there before is not repeated.
            seq = self._line.feed.head(session_stream(outcome.go_to))
            await self._memory.set({f"cursor {head.room}": json.dumps({"session": outcome.go_to, "seq": seq})})
            await self._redactions.leads_elsewhere(head.room)
            await self._router.lead(head.room, outcome.go_to, by)
        await self._reply(head, _result_text(outcome))
        await self._memory.set({mark: None})

    async def _whole_ask(self, head: EventHead, approval: str) -> None:
        card = self._router.board(head.room).find(approval)
        lines = [line.text for line in whole_card(card.ask)]
        await self._reply(head, "\n".join([*lines, plain_line(card.may_answer, _LONGEST_WHO)] if card.may_answer else lines))

    async def _answer(
        self,
        head: EventHead,
        approval: ApprovalId,
        *,
        granted: bool,
        scope: GrantScope = GrantScope.ONCE,
        reason: str = "",
        posted: PostedAsk | None = None,
    ) -> None:
        """Answer an ask shown in this room, of any session, together with the identical ones that were shown with it."""
        mark = f"doing {head.event}"
        board = self._router.board(head.room, self._router.desk(_key(head)))
        stored = self._memory.get(mark)
        if stored is not None:
            # After a restart, this message answers exactly the asks that it answered before.
            asks = tuple((SessionId(session), ApprovalId(ask)) for session, ask in json.loads(stored))
        else:
            joined = board.find(approval, posted.session if posted else None).joined
            # A reaction refers to the message as first posted; a person who types an ask's id has read the id.
            shown = posted.newest if posted and any(name == posted.newest for _, name in joined) else approval
            asks = up_to(joined, shown)
            await self._memory.set({mark: json.dumps(asks)})
        command = AnswerApproval(by=_who(head), approval=asks[0][1], granted=granted, scope=scope, reason=reason)
        result = await board.answer_all(asks, command)
        await self._reply(head, plain_line(result.text, _LONGEST_LIST))
        await self._memory.set({mark: None})

    async def _on_reaction(self, reaction: Reaction, room_asks: RoomAsks | None) -> None:
        """Take a reaction as an answer, if the homeserver is trusted not to forge reactions."""
        sign = reaction.sign.replace("\ufe0f", "")
        # A reaction may carry a skin tone.
        sign = "".join(letter for letter in sign if not 0x1F3FB <= ord(letter) <= 0x1F3FF)
        posted = await room_asks.posted(reaction.about) if room_asks is not None and sign in YES | NO else None
        if posted is None:
            return
        if not self._people.may_control(reaction.head.sender):
            await self.refuse(reaction.head, f"only operators may answer, and {reaction.head.sender} is none", about=reaction.about)
        elif not self._people.trusts_homeserver:
            how = f"write `/approve {posted.approval}` or `/deny {posted.approval}`"
            words = f"a sign is no answer here, because the homeserver could make it up; {how}"
            await self.refuse(reaction.head, words, about=reaction.about)
        else:
            await self._answer(reaction.head, posted.approval, granted=sign in YES, posted=posted)

    async def refuse(self, head: EventHead, text: str, about: str = "") -> None:
        """Say why an event was refused; in a flood, only the first few times."""
        self._refused[head.room] += 1
        if self._refused[head.room] <= _MOST_REFUSED:
            await self._reply(head, plain_line(text, _LONGEST_WHO), about)

    async def sum_up(self, sync: str) -> None:
        """Report how many further refusals were not reported since the last sync."""
        refused, self._refused = self._refused, Counter()
        for room, count in refused.items():
            if count > _MOST_REFUSED:
                message = RoomMessage(f"{count - _MOST_REFUSED} more were not taken", notice=True)
                await retry(lambda room=room, message=message: self._outbox.say(room, f"{room} flood {sync}", message), _TRIES)

    async def _reply(self, head: EventHead, text: str, about: str = "") -> None:
        cut = len(text) - _LONGEST_LIST
        parts = pieces(text if cut <= 0 else f"{text[:_LONGEST_LIST]}\n…[{cut} characters are not shown here]…")
        name = f"{head.room} reply {head.event}"
        opening = RoomMessage(parts[0], html=with_code(parts[0]), notice=True, thread=head.thread, reply_to=about or head.event)
        first = await retry(lambda: self._outbox.say(head.room, name, opening), _TRIES)
        for number, part in enumerate(parts[1:] if first else ()):
            message = RoomMessage(part, notice=True, thread=head.thread or first or "")
            await retry(lambda number=number, message=message: self._outbox.say(head.room, f"{name} {number}", message), _TRIES)


def stale_names(heads: Sequence[str], memory: Memory) -> Mapping[str, None]:
    """Return the names that are no longer needed after these events have been handled."""
    events = frozenset(heads)
    sent = memory.named("sent ")
    return dict.fromkeys(name for name in sent if " reply " in name and name.rpartition(" reply ")[2].split(" ")[0] in events)


def _is_control(text: str) -> bool:
    """Tell whether a text is a slash word or looks like a misspelled one; a path at the start of a sentence is neither."""
    stripped = text.strip()
    if not stripped.startswith("/") or stripped.startswith("//"):
        return False
    word, *rest = stripped[1:].split(maxsplit=1) or [""]
    if word.casefold() in WORDS or nearest(word, _ALIKE) is not None:
        return True
    return not rest and word.replace("-", "").isalpha()


def _result_text(outcome: SlashResult) -> str:
    if outcome.quits or outcome.clears:
        return "there is nothing to leave or to clear here; the session goes on whenever somebody writes"
    return "\n".join(outcome.lines) or "done"


def _who(head: EventHead) -> Who:
    return Who(name=head.sender, channel=CHANNEL)


def _key(head: EventHead) -> str:
    return f"{CHANNEL} {head.room} {head.event}"


def _message_id(head: EventHead) -> MessageId:
    return MessageId(head.event)
