"""Redacted messages: a queued one is withdrawn; for one that the agent already works on, the author gets a notice."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Protocol

from curtainwall.channels.matrix.events import Redaction
from curtainwall.channels.matrix.memory import CHANNEL, Memory
from curtainwall.channels.ports import ChannelPorts
from curtainwall.model import (
    CommandRefused,
    Desk,
    MessageAccepted,
    MessageId,
    NotFound,
    SessionId,
    TurnEnded,
    TurnStarted,
    TurnStatus,
    Who,
    WithdrawMessage,
    record,
    session_stream,
)

_MOST_BEFORE: Final = 5
_DONE: Final = "this was taken back, and is not worked on"
_TOO_LATE: Final = "this was taken back too late: the agent works on it already; `/interrupt` of an operator stops it"


class _RoomSessions(Protocol):
    """Where redactions find the sessions of a room."""

    def session_at(self, room: str) -> SessionId | None:
        """Return the session that a room leads to, or None."""
        ...

    def desk(self, key: str) -> Desk:
        """Return a desk that executes the same command under the same key once."""
        ...


@record
class Redactions:
    """Withdraws messages queued from a room, in its session or the last few before; the author and operators may do this."""

    router: _RoomSessions
    line: ChannelPorts
    memory: Memory
    operators: frozenset[str]

    async def take(self, redaction: Redaction) -> str:
        """Withdraw a message if it is queued, and return the reply; "" if nobody needs one."""
        by, message, mark = Who(name=redaction.head.sender, channel=CHANNEL), MessageId(redaction.about), f"doing {redaction.head.event}"
        await self._forget_sealed(by, message)
        # After a restart, use the recorded session: this redaction may itself have removed the message from the queue.
        session = self.memory.get(mark) or self._session_with(redaction.head.room, by, message)
        if session is None:
            return _TOO_LATE if self._is_worked_on(redaction.head.room, by, message) else ""
        await self.memory.set({mark: session})
        reply = _DONE
        try:
            await self.router.desk(f"{CHANNEL} {redaction.head.room} {redaction.head.event}").send(
                SessionId(session), WithdrawMessage(by=by, message=message)
            )
        except CommandRefused:
            reply = _TOO_LATE
        await self.memory.set({mark: None})
        return reply

    async def leads_elsewhere(self, room: str) -> None:
        """Remember the session that a room leads to now: messages queued there can still be withdrawn."""
        session = self.router.session_at(room)
        if session is not None:
            earlier = [id_ for id_ in self._earlier_sessions(room) if id_ != session]
            await self.memory.set({f"led {room}": json.dumps([session, *earlier][:_MOST_BEFORE])})

    def _earlier_sessions(self, room: str) -> list[SessionId]:
        return [SessionId(id_) for id_ in json.loads(self.memory.get(f"led {room}") or "[]")]

    def _sessions(self, room: str) -> Iterator[SessionId]:
        session = self.router.session_at(room)
        yield from dict.fromkeys(() if session is None else (session, *self._earlier_sessions(room)))

    def _session_with(self, room: str, by: Who, message: MessageId) -> SessionId | None:
        for session in self._sessions(room):
            with suppress(NotFound):
                waiting = self.line.desk.view(session).queue
                if any(queued.message == message and self._may_withdraw(by, queued.by) for queued in waiting):
                    return session
        return None

    def _is_worked_on(self, room: str, by: Who, message: MessageId) -> bool:
        session = self.router.session_at(room)
        if session is None or self.line.desk.view(session).status not in ("working", "waiting"):
            return False
        author, turn = None, None
        for recorded in self.line.feed.read(session_stream(session)):
            match recorded.event:
                case MessageAccepted() as event if event.message == message:
                    author = event.by
                case TurnStarted() as event if message in event.messages:
                    turn = event.turn
                case TurnEnded() as event if event.turn == turn and event.status is not TurnStatus.WAITING:
                    turn = None
                case _:
                    pass
        return turn is not None and author is not None and self._may_withdraw(by, str(author))

    async def _forget_sealed(self, by: Who, message: MessageId) -> None:
        """Forget a redacted event that could not be decrypted yet."""
        for sealed in tuple(self.memory.sealed()):
            if sealed.head.event == message and self._may_withdraw(by, str(Who(name=sealed.head.sender, channel=CHANNEL))):
                await self.memory.drop_sealed(sealed)

    def _may_withdraw(self, by: Who, author: str) -> bool:
        return author == str(by) or by.name in self.operators
