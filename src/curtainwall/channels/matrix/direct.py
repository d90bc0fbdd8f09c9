"""Direct rooms: asks for a person are shown in a room with that person alone, which is made when it is first needed."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from curtainwall.channels.matrix.encryption import DeviceKeys
from curtainwall.channels.matrix.homeserver import Homeserver, HomeserverRefused
from curtainwall.channels.matrix.memory import Memory
from curtainwall.channels.matrix.replies import retry
from curtainwall.channels.matrix.rooms import AskPlaces, MatrixReport
from curtainwall.model import Feed, SessionId, StreamId

_NAME: Final = "direct "
_PRESENT: Final = frozenset({"join", "invite"})


@dataclass(slots=True)
class DirectRooms:
    """The direct rooms of the operators; only they have one, because only they can answer."""

    homeserver: Homeserver
    keys: DeviceKeys
    places: AskPlaces
    memory: Memory
    operators: Sequence[str]
    report: MatrixReport
    made: int = 0
    """How many rooms were made in this run; the sync after that must bring their state."""
    _ready: set[str] = field(default_factory=set[str])
    _shown: set[tuple[str, SessionId]] = field(default_factory=set[tuple[str, SessionId]])
    _refused: set[str] = field(default_factory=set[str])
    _open: set[str] = field(default_factory=set[str])
    """Rooms that were to be encrypted and are not, which was reported."""
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held until a room that is made is known as the direct room of its person: a sync can bring it earlier."""

    @property
    def people(self) -> Mapping[str, str]:
        """The person of each direct room."""
        rooms = {room: name.removeprefix(_NAME) for name, room in self.memory.named(_NAME).items()}
        return {room: person for room, person in rooms.items() if person in self.operators}

    async def is_ready(self, room: str) -> bool:
        """Tell whether asks can be shown in a room: in a direct one, its person must have joined, or could not decrypt them.

        INVARIANT: nothing is said in a direct room that is not encrypted. We asked for encryption; the homeserver may have left it out.
        """
        if room in self._ready:
            return True
        async with self._making:
            person = self.people.get(room)
        if person is not None:
            if await self.homeserver.membership(room, person) != "join":
                return False
            if not self.keys.is_encrypted(room):
                self._report_open(room, person)
                return False
        self._ready.add(room)
        return True

    def _report_open(self, room: str, person: str) -> None:
        if room not in self._open:
            self._open.add(room)
            self.report(f"`{room}` for {person} was to be encrypted and is not, so nothing is shown there", is_trouble=True)

    async def follow(self, feed: Feed) -> None:
        """Show the asks of sessions in the direct rooms of the people whom they are for, until cancelled."""
        await self._renew()
        await self._show()
        known: set[StreamId] = set()
        async for streams in feed.changes():
            if not streams or not streams <= known:
                known |= streams
                await self._show()

    async def _renew(self) -> None:
        """Invite people again who have left their room; forget a room that we are no longer in."""
        for room, person in self.people.items():
            if room in self.memory.left() or not await retry(lambda room=room, person=person: self._is_kept(room, person)):
                await self.memory.set({f"{_NAME}{person}": None})

    async def _is_kept(self, room: str, person: str) -> bool:
        if await self.homeserver.membership(room, person) not in _PRESENT:
            await self.homeserver.invite(room, person)
        return True

    async def _show(self) -> None:
        for person in self.operators:
            sessions = [session for session in self.places.shown_in(person) if (person, session) not in self._shown]
            room = await self._room_of(person) if sessions else None
            if room is not None and room not in self.memory.left():
                await self.places.show(room, sessions, shown=True)
                self._shown |= {(person, session) for session in sessions}

    async def _room_of(self, person: str) -> str | None:
        room = self.memory.get(f"{_NAME}{person}")
        if room is not None or person in self._refused:
            return room
        room = await retry(lambda: self._make(person))
        if room is not None:
            self.report(f"asks for {person} are shown in `{room}`; they have to accept the invitation")
            self.made += 1
        return room

    async def _make(self, person: str) -> str:
        try:
            async with self._making:
                room = await self.homeserver.create_direct(person)
                await self.memory.set({f"{_NAME}{person}": room})
                return room
        except HomeserverRefused as refusal:
            self._refused.add(person)
            self.report(f"no room could be made for {person}, so asks for them are not shown: {refusal}", is_trouble=True)
            raise
