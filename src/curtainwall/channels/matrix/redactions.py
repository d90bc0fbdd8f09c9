"""Messages that somebody removes: what still waits is not worked on, and of what is worked on it is said that it is."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
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
    session_stream,
)

_MOST_BEFORE: Final = 5
_DONE: Final = "this was taken back, and is not worked on"
_TOO_LATE: Final = "this was taken back too late: the agent works on it already; `/interrupt` of an operator stops it"


class _RoomSessions(Protocol):
    """The house, as far as what waits in it can be taken back."""

    def session_at(self, room: str) -> SessionId | None:
        """Return the session that a room leads to, or None."""
        ...

    def desk(self, key: str) -> Desk:
        """Return a desk on which the same command under the same key is done once."""
        ...


@dataclass(frozen=True, slots=True)
class Redactions:
    """What waits because of a room, in the session that it leads to or led to lately; its author may take it back, and an operator."""

    doors: _RoomSessions
    line: ChannelPorts
    memory: Memory
    operators: frozenset[str]

    async def take(self, back: Redaction) -> str:
        """Take a message back where it waits, and return what to say; nothing where nobody needs to be told."""
        by, message, begun = Who(name=back.head.sender, channel=CHANNEL), MessageId(back.about), f"doing {back.head.event}"
        await self._forget_sealed(by, message)
        # Where a restart came in between, it was found before, and may not wait any more because of this very removal.
        found = self.memory.get(begun) or self._waits_in(back.head.room, by, message)
        if found is None:
            return _TOO_LATE if self._is_worked_on(back.head.room, by, message) else ""
        await self.memory.set({begun: found})
        told = _DONE
        try:
            await self.doors.desk(f"{CHANNEL} {back.head.room} {back.head.event}").send(
                SessionId(found), WithdrawMessage(by=by, message=message)
            )
        except CommandRefused:
            told = _TOO_LATE
        await self.memory.set({begun: None})
        return told

    async def leads_elsewhere(self, room: str) -> None:
        """Remember the session that a room leads to until now: what waits there can still be taken back."""
        session = self.doors.session_at(room)
        if session is not None:
            before = [it for it in self._before(room) if it != session]
            await self.memory.set({f"led {room}": json.dumps([session, *before][:_MOST_BEFORE])})

    def _before(self, room: str) -> list[SessionId]:
        return [SessionId(it) for it in json.loads(self.memory.get(f"led {room}") or "[]")]

    def _sessions(self, room: str) -> Iterator[SessionId]:
        session = self.doors.session_at(room)
        yield from dict.fromkeys(() if session is None else (session, *self._before(room)))

    def _waits_in(self, room: str, by: Who, message: MessageId) -> SessionId | None:
        for session in self._sessions(room):
            with suppress(NotFound):
                waiting = self.line.desk.view(session).queue
                if any(it.message == message and self._may(by, it.by) for it in waiting):
                    return session
        return None

    def _is_worked_on(self, room: str, by: Who, message: MessageId) -> bool:
        session = self.doors.session_at(room)
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
        return turn is not None and author is not None and self._may(by, str(author))

    async def _forget_sealed(self, by: Who, message: MessageId) -> None:
        """Forget something that could not be decrypted yet."""
        for sealed in tuple(self.memory.sealed()):
            if sealed.head.event == message and self._may(by, str(Who(name=sealed.head.sender, channel=CHANNEL))):
                await self.memory.drop_sealed(sealed)

    def _may(self, by: Who, author: str) -> bool:
        return author == str(by) or by.name in self.operators
