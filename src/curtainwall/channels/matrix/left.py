"""Rooms that we are no longer in: nothing is shown there, whoever runs the house is told, and coming back makes it as it was."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from curtainwall.channels.matrix.events import Raw, rows, table, text_of
from curtainwall.channels.matrix.memory import LeftRoom, Memory
from curtainwall.channels.text.counts import counted
from curtainwall.channels.text.plain import plain_line
from curtainwall.model import SessionId

_LONGEST_REASON = 200


class Places(Protocol):
    """The house, as far as it knows whose asks are shown in a room."""

    def shown_in(self, room: str) -> Sequence[SessionId]:
        """Return the sessions whose asks are shown in a room."""
        ...

    async def show(self, room: str, sessions: Iterable[SessionId], *, shown: bool) -> None:
        """Show the asks of sessions in a room from here on, or no more; one that is gone or closed is passed over."""
        ...


class Report(Protocol):
    """Tells whoever reads the logs what they should know, and where it is trouble, that it is."""

    def __call__(self, words: str, *, is_trouble: bool = False) -> None: ...


@dataclass(slots=True)
class Left:
    """Every room that we were in and are not any more.

    INVARIANT: whose asks were shown in a room is remembered before they are not shown there any more, so that it can be undone.
    """

    places: Places
    memory: Memory
    user: str
    report: Report
    _hidden: set[tuple[str, SessionId]] = field(default_factory=set[tuple[str, SessionId]])

    async def leave(self, room: str, info: Raw, *, was_in: bool) -> None:
        """Take in that we are out of a room; an invitation that was taken away looks alike, and nothing comes of it."""
        if was_in or self.places.shown_in(room):
            why, before = _why(info, self.user), self.memory.left().get(room)
            await self.memory.keep_left(room, LeftRoom(why, before.sessions if before else ()))
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
