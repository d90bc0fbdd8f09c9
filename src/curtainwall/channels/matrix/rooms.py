"""The rooms that we are in, with what runs for each, and those that we are no longer in."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from curtainwall.channels.matrix.asks import RoomAsks
from curtainwall.channels.matrix.events import Raw, rows, table, text_of
from curtainwall.channels.matrix.inbox import RoomRouter
from curtainwall.channels.matrix.memory import DepartedRoom, Memory
from curtainwall.channels.matrix.outbox import MatrixOutbox
from curtainwall.channels.matrix.replies import ReplyPace, RoomReplies
from curtainwall.channels.plain import counted, plain_line
from curtainwall.channels.ports import ChannelPorts
from curtainwall.model import HOUSE, SessionId, StreamId


@dataclass(slots=True)
class _Room:
    """What runs for one room."""

    asking: RoomAsks
    showing: asyncio.Task[None]
    session: SessionId | None = None
    telling: "asyncio.Task[None] | None" = None


@dataclass(slots=True)
class Rooms:
    """Every room that we are in."""

    doors: RoomRouter
    line: ChannelPorts
    outbox: MatrixOutbox
    memory: Memory
    pace: ReplyPace
    operators: Sequence[str]
    tasks: asyncio.TaskGroup
    _rooms: dict[str, _Room] = field(default_factory=dict[str, _Room])

    def enter(self, room: str) -> RoomAsks:
        """Look after a room from here on, and return its asks."""
        if room not in self._rooms:
            asking = RoomAsks(self.doors.board(room), self.outbox, self.memory, room, self.operators)
            self._rooms[room] = _Room(asking, self.tasks.create_task(asking.run(), name=f"asks in {room}"))
            self._turn_to(room)
        return self._rooms[room].asking

    def leave(self, room: str) -> bool:
        """Stop looking after a room, and tell whether anybody did."""
        found = self._rooms.pop(room, None)
        for task in () if found is None else (found.showing, found.telling):
            if task is not None:
                task.cancel()
        return found is not None

    async def follow(self) -> None:
        """Turn to another session wherever a room leads to one, until cancelled."""
        async for streams in self.line.feed.changes():
            if not streams or StreamId(HOUSE) in streams:
                for room in tuple(self._rooms):
                    self._turn_to(room)

    def _turn_to(self, room: str) -> None:
        found, session = self._rooms[room], self.doors.session_at(room)
        if session is None or session == found.session:
            return
        if found.telling is not None:
            found.telling.cancel()
        found.session = session
        replies = RoomReplies(self.line, self.outbox, self.memory, room, self.pace)
        found.telling = self.tasks.create_task(replies.run(session), name=f"replies in {room}")


_LONGEST_REASON = 200


class AskPlaces(Protocol):
    """The house, as far as it knows whose asks are shown in a room."""

    def shown_in(self, room: str) -> Sequence[SessionId]:
        """Return the sessions whose asks are shown in a room."""
        ...

    async def show(self, room: str, sessions: Iterable[SessionId], *, shown: bool) -> None:
        """Show the asks of sessions in a room from here on, or no more; one that is gone or closed is passed over."""
        ...


class MatrixReport(Protocol):
    """Tells whoever reads the logs what they should know, and where it is trouble, that it is."""

    def __call__(self, words: str, *, is_trouble: bool = False) -> None: ...


@dataclass(slots=True)
class DepartedRooms:
    """Every room that we were in and are not any more.

    INVARIANT: whose asks were shown in a room is remembered before they are not shown there any more, so that it can be undone.
    """

    places: AskPlaces
    memory: Memory
    user: str
    report: MatrixReport
    _hidden: set[tuple[str, SessionId]] = field(default_factory=set[tuple[str, SessionId]])

    async def leave(self, room: str, info: Raw, *, was_in: bool) -> None:
        """Take in that we are out of a room; an invitation that was taken away looks alike, and nothing comes of it."""
        if was_in or self.places.shown_in(room):
            why, before = _why(info, self.user), self.memory.left().get(room)
            await self.memory.keep_left(room, DepartedRoom(why, before.sessions if before else ()))
            self.report(
                f"we are no longer in `{room}`: {why}; asks are not shown there until `{self.user}` is invited again", is_trouble=True
            )

    async def look(self) -> None:
        """Stop showing asks in rooms that we are not in, also those of sessions that were opened since."""
        for room, left in self.memory.left().items():
            found = [it for it in self.places.shown_in(room) if (room, it) not in self._hidden]
            if found:
                await self.memory.keep_left(room, replace(left, sessions=tuple(dict.fromkeys((*left.sessions, *found)))))
                await self.places.show(room, found, shown=False)
                self._hidden |= {(room, it) for it in found}
                self.report(f"asks of {counted(len(found), 'session')} are no longer shown in `{room}`: {left.why}", is_trouble=True)

    async def come_back(self, room: str) -> None:
        """Show again what was shown in a room before we left it."""
        left = self.memory.left().get(room)
        if left is not None:
            await self.places.show(room, left.sessions, shown=True)
            await self.memory.keep_left(room, None)
            self._hidden -= {(room, it) for it in left.sessions}
            self.report(f"we are in `{room}` again; asks of {counted(len(left.sessions), 'session')} are shown there")


def _why(info: Raw, own: str) -> str:
    """Return how we came out of a room, as the homeserver tells it."""
    told = [raw for part in ("state", "timeline") for raw in rows(table(info.get(part)).get("events"))]
    ours = [raw for raw in told if raw.get("type") == "m.room.member" and raw.get("state_key") == own]
    last: Raw = ours[-1] if ours else {}
    content, by = table(last.get("content")), text_of(last.get("sender"))
    if by in (None, own):
        return "it was left"
    reason = text_of(content.get("reason"), 10_000)
    how = "banned" if content.get("membership") == "ban" else "sent out"
    return plain_line(f"{how} by {by}{f' ({reason})' if reason else ''}", _LONGEST_REASON)
