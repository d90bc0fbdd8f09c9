"""What people in rooms write: talk goes to the room's session, control words of operators are carried out, strangers go no further."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
    session_stream,
)

_LONGEST_LIST: Final = 60_000
_LONGEST_WHO: Final = 1_000
_LONGEST_NAME: Final = 80
_MOST_REFUSED: Final = 10
_TRIES: Final = 3
_ALIKE: Final = 0.75


class RoomRouter(Protocol):
    """The house, as far as rooms lead into it."""

    def session_at(self, room: str) -> SessionId | None:
        """Return the session that a room leads to, or None."""
        ...

    async def enter(self, room: str, by: Who, called: str) -> SessionId:
        """Return the session that a room leads to; where there is none, or it is closed, one is opened, and called so."""
        ...

    async def lead(self, room: str, session: SessionId, by: Who) -> None:
        """Let a room lead to another session from here on, and its asks be shown there."""
        ...

    def desk(self, key: str) -> Desk:
        """Return a desk on which the same command under the same key is done once."""
        ...

    def board(self, room: str, desk: AskDesk | None = None) -> Board:
        """Return the asks that are shown in a room, answered over a desk."""
        ...


@dataclass(frozen=True, slots=True)
class People:
    """Who may do what: operators control, talkers talk; `*` is everybody in the room, `*:server` everybody of a server."""

    own: str
    operators: frozenset[str]
    talkers: frozenset[str]
    trusts_homeserver: bool

    def may_talk(self, user: str) -> bool:
        """Tell whether what somebody says goes to the session."""
        return user in self.operators or not self.talkers.isdisjoint({user, "*", f"*:{user.partition(':')[2]}"})

    def may_control(self, user: str) -> bool:
        """Tell whether somebody may answer asks and use control words."""
        return user in self.operators


class RoomInbox:
    """What is heard in every room, one event after the other, each once.

    INVARIANT: whatever is done for an event carries its id, so that doing it again after a crash is the same deed.
    """

    def __init__(
        self, doors: RoomRouter, line: ChannelPorts, people: People, outbox: MatrixOutbox, memory: Memory, log_places: LogPlaces
    ) -> None:
        self._doors = doors
        self._line = line
        self._people = people
        self._outbox = outbox
        self._memory = memory
        self._log_places = log_places
        self._taking_back = Redactions(doors, line, memory, people.operators)
        self._refused: Counter[str] = Counter()
        self.called: dict[str, str] = {}
        """What people call each room, where it has a name."""

    async def take(self, event: Event, *, encrypted: bool, asking: RoomAsks | None) -> None:
        """Do what somebody wants with an event; raise `TryLater` where it has to be heard again."""
        try:
            await self._take(event, encrypted=encrypted, asking=asking)
        except TryLater:
            raise
        except CurtainwallError as refusal:
            await self._reply(event.head, plain_line(str(refusal)))

    async def _take(self, event: Event, *, encrypted: bool, asking: RoomAsks | None) -> None:
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
                await self._said(event, asking)
            case Edit():
                await self._edited(event)
            case Redaction():
                if words := await self._taking_back.take(event):
                    await self._reply(event.head, words, event.about)
            case Reaction():
                await self._reacted(event, asking)
            case Attachment():
                await self.refuse(event.head, f"a {event.kind} cannot be taken here; write what it is about")
            case EncryptedEvent():
                pass

    async def _turn_away(self, event: TextMessage | Attachment) -> None:
        """Say once to a stranger that nothing of theirs is taken, and once more for each ask that they try to answer."""
        head, ask = event.head, self._answered_by(event)
        words = f"{head.sender} is not on the list of people who may talk here; nothing of theirs is taken"
        if ask is not None:
            words = f"only operators may answer, and {head.sender} is none; `{ask}` is as open as before"
        name = f"stranger {head.room} {head.sender}{f' {ask}' if ask else ''}"
        if self._memory.get(name) is None:
            await self.refuse(head, words)
            await self._memory.set({name: head.event})

    def _answered_by(self, event: TextMessage | Attachment) -> ApprovalId | None:
        """Return the open ask of this room that somebody means to answer."""
        try:
            request = parse(event.text) if isinstance(event, TextMessage) else None
            if not isinstance(request, Approve | Deny) or request.approval is None:
                return None
            return self._doors.board(event.head.room).find(request.approval).approval
        except (CommandRefused, SlashUsageError):
            return None

    async def _edited(self, edited: Edit) -> None:
        """Say once of a message that its change is not taken: whoever corrects a word would wait for what never comes."""
        name = f"edited {edited.head.room} {edited.about}"
        if self._memory.get(name) is None:
            words = "a change of what was written is not taken; write it as a new message"
            await self.refuse(edited.head, words, about=edited.about)
            await self._memory.set({name: edited.head.event})

    async def _said(self, said: TextMessage, asking: RoomAsks | None) -> None:
        head, text = said.head, said.text
        if not _is_control(text):
            await self._talk(said, text.strip()[1:] if text.strip().startswith("//") else text)
            await self._say_how_to_answer(said, asking)
        elif not self._people.may_control(head.sender):
            await self.refuse(head, f"only operators may do that, and {head.sender} is none; `//` before it sends it as a message")
        elif not said.sealed and not self._people.trusts_homeserver:
            words = "slash words count in encrypted rooms alone: here the homeserver could write them in your name"
            await self.refuse(head, f"{words} (`trust-homeserver` in the configuration allows it)")
        else:
            await self._control(head, text)

    async def _talk(self, said: TextMessage, text: str) -> None:
        head, by = said.head, _who(said.head)
        session = await self._enter(head.room, by)
        # Talk is taken by the homeserver's word, but nothing is approved because of it.
        proven = said.sealed or self._people.trusts_homeserver
        await self._doors.desk(_key(head)).send(session, SendMessage(by=by, message=_message_id(head), text=text, proven=proven))

    async def _say_how_to_answer(self, said: TextMessage, asking: RoomAsks | None) -> None:
        """Tell an operator who writes plain words under the card of an open ask that they are no answer to it."""
        is_meant = asking is not None and said.about and self._people.may_control(said.head.sender)
        posted = await asking.posted(said.about) if asking is not None and is_meant else None
        if posted is None:
            return
        with suppress(CommandRefused):
            card = self._doors.board(said.head.room).find(posted.approval, posted.session)
            how = f"`/approve {card.newest}` or `/deny {card.newest}` does"
            await self.refuse(said.head, f"this went to the agent as a message and answers nothing; {how}")

    async def _enter(self, room: str, by: Who) -> SessionId:
        return await self._doors.enter(room, by, plain_line(self.called.get(room, "") or by.name, _LONGEST_NAME))

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
                board = self._doors.board(head.room)
                cards = board.cards() if request.after is None else board.cards_after(request.after)
                await self._reply(head, ask_list(cards, head.room, _LONGEST_LIST))
            case ShowPending(approval=approval):
                await self._whole_ask(head, approval or "")
            case _:
                await self._do(head, request)

    async def _do(self, head: EventHead, request: Request) -> None:
        by, begun = _who(head), f"doing {head.event}"
        if isinstance(request, New | Reset | Fork):
            if self._memory.get(begun) is not None:
                await self._reply(head, "a restart came in between, and it is unknown whether this was done; `/sessions` shows it")
                return
            await self._memory.set({begun: "1"})
        session = await self._enter(head.room, by)
        desk = self._doors.desk(_key(head))
        outcome = await Control(replace(self._line, desk=desk), by, self._log_places).do(session, request)
        if outcome.go_to is not None:
            # What was said in there before is not told again.
            seq = self._line.feed.head(session_stream(outcome.go_to))
            await self._memory.set({f"cursor {head.room}": json.dumps({"session": outcome.go_to, "seq": seq})})
            await self._taking_back.leads_elsewhere(head.room)
            await self._doors.lead(head.room, outcome.go_to, by)
        await self._reply(head, _result_text(outcome))
        await self._memory.set({begun: None})

    async def _whole_ask(self, head: EventHead, approval: str) -> None:
        card = self._doors.board(head.room).find(approval)
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
        """Answer an ask that is shown in this room, of whichever session it is, and the identical ones that were shown with it."""
        begun = f"doing {head.event}"
        board = self._doors.board(head.room, self._doors.desk(_key(head)))
        kept = self._memory.get(begun)
        if kept is not None:
            # A restart came in between: what this very message answered is answered by it again, and by nobody else.
            asks = tuple((SessionId(session), ApprovalId(ask)) for session, ask in json.loads(kept))
        else:
            joined = board.find(approval, posted.session if posted else None).joined
            # A sign is about the message as it was first said; whoever names an ask has read the name.
            shown = posted.newest if posted and any(name == posted.newest for _, name in joined) else approval
            asks = up_to(joined, shown)
            await self._memory.set({begun: json.dumps(asks)})
        command = AnswerApproval(by=_who(head), approval=asks[0][1], granted=granted, scope=scope, reason=reason)
        answered = await board.answer_all(asks, command)
        await self._reply(head, plain_line(answered.text, _LONGEST_LIST))
        await self._memory.set({begun: None})

    async def _reacted(self, reacted: Reaction, asking: RoomAsks | None) -> None:
        """Take a sign as an answer, where the homeserver is trusted not to make them up."""
        sign = reacted.sign.replace("\ufe0f", "")
        # A sign may come with a colour of skin.
        sign = "".join(letter for letter in sign if not 0x1F3FB <= ord(letter) <= 0x1F3FF)
        posted = await asking.posted(reacted.about) if asking is not None and sign in YES | NO else None
        if posted is None:
            return
        if not self._people.may_control(reacted.head.sender):
            await self.refuse(reacted.head, f"only operators may answer, and {reacted.head.sender} is none", about=reacted.about)
        elif not self._people.trusts_homeserver:
            how = f"write `/approve {posted.approval}` or `/deny {posted.approval}`"
            words = f"a sign is no answer here, because the homeserver could make it up; {how}"
            await self.refuse(reacted.head, words, about=reacted.about)
        else:
            await self._answer(reacted.head, posted.approval, granted=sign in YES, posted=posted)

    async def refuse(self, head: EventHead, text: str, about: str = "") -> None:
        """Say why something was not taken; of a flood, only so often."""
        self._refused[head.room] += 1
        if self._refused[head.room] <= _MOST_REFUSED:
            await self._reply(head, plain_line(text, _LONGEST_WHO), about)

    async def sum_up(self, look: str) -> None:
        """Say how much more was refused than was told since the last look."""
        refused, self._refused = self._refused, Counter()
        for room, count in refused.items():
            if count > _MOST_REFUSED:
                words = RoomMessage(f"{count - _MOST_REFUSED} more were not taken", notice=True)
                await retry(lambda room=room, words=words: self._outbox.say(room, f"{room} flood {look}", words), _TRIES)

    async def _reply(self, head: EventHead, text: str, about: str = "") -> None:
        cut = len(text) - _LONGEST_LIST
        parts = pieces(text if cut <= 0 else f"{text[:_LONGEST_LIST]}\n…[{cut} characters are not shown here]…")
        name = f"{head.room} reply {head.event}"
        begin = RoomMessage(parts[0], html=with_code(parts[0]), notice=True, thread=head.thread, reply_to=about or head.event)
        first = await retry(lambda: self._outbox.say(head.room, name, begin), _TRIES)
        for number, part in enumerate(parts[1:] if first else ()):
            words = RoomMessage(part, notice=True, thread=head.thread or first or "")
            await retry(lambda number=number, words=words: self._outbox.say(head.room, f"{name} {number}", words), _TRIES)


def stale_names(heads: Sequence[str], memory: Memory) -> Mapping[str, None]:
    """Return the names that are no longer needed once these events are behind us."""
    events = frozenset(heads)
    kept = memory.named("sent ")
    return dict.fromkeys(name for name in kept if " reply " in name and name.rpartition(" reply ")[2].split(" ")[0] in events)


def _is_control(text: str) -> bool:
    """Tell whether a text is a slash word, or looks like one that there is not; a path at the beginning of a sentence is none."""
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
