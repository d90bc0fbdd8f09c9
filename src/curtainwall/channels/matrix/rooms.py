"""The rooms that we are in: for each, whoever tells what its session says, and whoever shows its asks."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from curtainwall.channels.line import Line
from curtainwall.channels.matrix.asks import Asking
from curtainwall.channels.matrix.inbox import Doors
from curtainwall.channels.matrix.memory import Memory
from curtainwall.channels.matrix.outbox import Speaking
from curtainwall.channels.matrix.replies import Pace, Replies
from curtainwall.model import HOUSE, SessionId, StreamId


@dataclass(slots=True)
class _Room:
    """What runs for one room."""

    asking: Asking
    showing: asyncio.Task[None]
    session: SessionId | None = None
    telling: "asyncio.Task[None] | None" = None


@dataclass(slots=True)
class Rooms:
    """Every room that we are in."""

    doors: Doors
    line: Line
    speaking: Speaking
    memory: Memory
    pace: Pace
    operators: Sequence[str]
    tasks: asyncio.TaskGroup
    _rooms: dict[str, _Room] = field(default_factory=dict[str, _Room])

    def enter(self, room: str) -> Asking:
        """Look after a room from here on, and return its asks."""
        if room not in self._rooms:
            asking = Asking(self.doors.board(room), self.speaking, self.memory, room, self.operators)
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
        replies = Replies(self.line, self.speaking, self.memory, room, self.pace)
        found.telling = self.tasks.create_task(replies.run(session), name=f"replies in {room}")
