"""The rooms that we are in, with the tasks that run for each, and the rooms that we have left."""

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
    """The tasks of one room."""

    asks: RoomAsks
    asks_task: asyncio.Task[None]
    session: SessionId | None = None
    replies_task: "asyncio.Task[None] | None" = None


@dataclass(slots=True)
class Rooms:
    """Every room that we are in."""

    router: RoomRouter
    line: ChannelPorts
    outbox: MatrixOutbox
    memory: Memory
    pace: ReplyPace
    operators: Sequence[str]
    tasks: asyncio.TaskGroup
    _rooms: dict[str, _Room] = field(default_factory=dict[str, _Room])

    def enter(self, room: str) -> RoomAsks:
        """Start serving a room, and return its asks."""
        if room not in self._rooms:
            asks = RoomAsks(self.router.board(room), self.outbox, self.memory, room, self.operators)
            self._rooms[room] = _Room(asks, self.tasks.create_task(asks.run(), name=f"asks in {room}"))
            self._switch_session(room)
        return self._rooms[room].asks

    def leave(self, room: str) -> bool:
        """Stop serving a room; tell whether it was served."""
        entry = self._rooms.pop(room, None)
        for task in () if entry is None else (entry.asks_task, entry.replies_task):
            if task is not None:
                task.cancel()
        return entry is not None

    async def follow(self) -> None:
        """Switch to another session whenever a room leads to one, until cancelled."""
        async for streams in self.line.feed.changes():
            if not streams or StreamId(HOUSE) in streams:
                for room in tuple(self._rooms):
                    self._switch_session(room)

    def _switch_session(self, room: str) -> None:
        entry, session = self._rooms[room], self.router.session_at(room)
        if session is None or session == entry.session:
            return
        if entry.replies_task is not None:
            entry.replies_task.cancel()
        entry.session = session
        replies = RoomReplies(self.line, self.outbox, self.memory, room, self.pace)
        entry.replies_task = self.tasks.create_task(replies.run(session), name=f"replies in {room}")


_LONGEST_REASON = 200


class AskPlaces(Protocol):
    """Where asks are shown: which sessions' asks appear in which room."""

    def shown_in(self, room: str) -> Sequence[SessionId]:
        """Return the sessions whose asks are shown in a room."""
        ...

    async def show(self, room: str, sessions: Iterable[SessionId], *, shown: bool) -> None:
        """Start or stop showing the asks of sessions in a room; skip sessions that are gone or closed."""
        ...


class MatrixReport(Protocol):
    """Writes a line to the log, as a warning if it is trouble."""

    def __call__(self, words: str, *, is_trouble: bool = False) -> None: ...


@dataclass(slots=True)
class DepartedRooms:
    """Every room that we were in and have left.

    INVARIANT: the sessions whose asks a room shows are remembered before they are hidden there, so that this can be undone.
    """

    places: AskPlaces
    memory: Memory
    user: str
    report: MatrixReport
    _hidden: set[tuple[str, SessionId]] = field(default_factory=set[tuple[str, SessionId]])

    async def leave(self, room: str, info: Raw, *, was_in: bool) -> None:
        """Handle our removal from a room; a withdrawn invitation looks the same and changes nothing."""
        if was_in or self.places.shown_in(room):
            why, departed = _why(info, self.user), self.memory.left().get(room)
            await self.memory.keep_left(room, DepartedRoom(why, departed.sessions if departed else ()))
            self.report(
                f"we are no longer in `{room}`: {why}; asks are not shown there until `{self.user}` is invited again", is_trouble=True
            )

    async def hide_asks(self) -> None:
        """Stop showing asks in rooms that we have left, including those of sessions opened since."""
        for room, departed in self.memory.left().items():
            visible = [session for session in self.places.shown_in(room) if (room, session) not in self._hidden]
            if visible:
                await self.memory.keep_left(room, replace(departed, sessions=tuple(dict.fromkeys((*departed.sessions, *visible)))))
                await self.places.show(room, visible, shown=False)
                self._hidden |= {(room, session) for session in visible}
                self.report(f"asks of {counted(len(visible), 'session')} are no longer shown in `{room}`: {departed.why}", is_trouble=True)

    async def restore(self, room: str) -> None:
        """Show again what was shown in a room before we left it."""
        departed = self.memory.left().get(room)
        if departed is not None:
            await self.places.show(room, departed.sessions, shown=True)
            await self.memory.keep_left(room, None)
            self._hidden -= {(room, session) for session in departed.sessions}
            self.report(f"we are in `{room}` again; asks of {counted(len(departed.sessions), 'session')} are shown there")


def _why(info: Raw, own: str) -> str:
    """Return how we came to leave a room, from the homeserver's events."""
    events = [raw for part in ("state", "timeline") for raw in rows(table(info.get(part)).get("events"))]
    ours = [raw for raw in events if raw.get("type") == "m.room.member" and raw.get("state_key") == own]
    last: Raw = ours[-1] if ours else {}
    content, by = table(last.get("content")), text_of(last.get("sender"))
    if by in (None, own):
        return "it was left"
    reason = text_of(content.get("reason"), 10_000)
    how = "banned" if content.get("membership") == "ban" else "sent out"
    return plain_line(f"{how} by {by}{f' ({reason})' if reason else ''}", _LONGEST_REASON)
