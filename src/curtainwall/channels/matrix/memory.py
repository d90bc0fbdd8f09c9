"""What the channel remembers between its lives, besides the log: how far it has heard, what it has sent, and what it could not open yet."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from curtainwall.channels.matrix.events import EncryptedEvent, head_of, table
from curtainwall.model import Marks, SessionId

CHANNEL: Final = "matrix"
_MOST_SEALED: Final = 500
_MOST_TWINS: Final = 100_000
_BEHIND: Final = " done"
"""What no event's own id ends with."""


@dataclass(frozen=True, slots=True)
class DepartedRoom:
    """A room that we are no longer in: how that came, and the sessions whose asks were shown there."""

    why: str
    sessions: tuple[SessionId, ...] = ()


class Memory:
    """Names and what they stand for, durable; `user` keeps two accounts apart."""

    def __init__(self, marks: Marks, user: str) -> None:
        self._marks = marks
        self._of = f"{CHANNEL} {user}"
        self._twins = f"{CHANNEL} {user} twins"
        self._under_way: dict[str, str] = {}

    def get(self, name: str) -> str | None:
        """Return what was remembered."""
        return self._marks.get(self._of, name)

    async def set(self, told: Mapping[str, str | None]) -> None:
        """Remember these together; None forgets."""
        await self._marks.set(self._of, told)

    def named(self, start: str) -> Mapping[str, str]:
        """Return everything whose name starts so."""
        return {name: value for name, value in self._marks.all(self._of).items() if name.startswith(start)}

    @property
    def not_let_in(self) -> str:
        """Why the homeserver does not let us in, as it was when it was last asked; nothing where it does."""
        return self.get("not let in") or ""

    async def keep_not_let_in(self, why: str) -> None:
        """Remember why we are not let in, or, with nothing, that we are."""
        if why != self.not_let_in:
            await self.set({"not let in": why or None})

    def left(self) -> Mapping[str, DepartedRoom]:
        """Return the rooms that we are no longer in."""
        told = {name.removeprefix("left "): table(json.loads(value)) for name, value in self.named("left ").items()}
        return {room: DepartedRoom(str(it["why"]), tuple(map(SessionId, cast("list[str]", it["sessions"])))) for room, it in told.items()}

    async def keep_left(self, room: str, left: DepartedRoom | None) -> None:
        """Remember that we are no longer in a room, or, with nothing, that we are."""
        told = None if left is None else json.dumps({"why": left.why, "sessions": left.sessions})
        await self.set({f"left {room}": told})

    # What could not be opened yet

    async def keep_sealed(self, sealed: EncryptedEvent) -> None:
        """Keep something encrypted until its key comes; of very many, the newest."""
        kept = self.named("sealed ")
        told: dict[str, str | None] = dict.fromkeys(list(kept)[: max(len(kept) + 1 - _MOST_SEALED, 0)])
        told[f"sealed {sealed.head.event}"] = json.dumps({"room": sealed.head.room, "raw": sealed.raw})
        await self.set(told)

    def sealed(self) -> Iterable[EncryptedEvent]:
        """Return what still waits for its key."""
        for value in self.named("sealed ").values():
            told = table(json.loads(value))
            raw, room = table(told.get("raw")), str(told.get("room"))
            head = head_of(raw, room)
            if head is not None:
                yield EncryptedEvent(head, raw)

    async def drop_sealed(self, sealed: EncryptedEvent) -> None:
        """Forget something that was opened."""
        await self.set({f"sealed {sealed.head.event}": None})

    # What was encrypted once

    async def is_repeated(self, twin: str, event: str) -> bool:
        """Tell whether the same encrypted bytes came before, as another event or as one that is behind us."""
        known = self._marks.get(self._twins, twin)
        if known is None:
            await self._marks.set(self._twins, {twin: event})
        if known not in (None, event):
            return True
        self._under_way[twin] = event
        return False

    async def settle(self) -> None:
        """Put what was opened since the last time behind us.

        INVARIANT: called when all of it is done and before that is remembered. A crash before this brings it again, to be gone on with;
        whoever brings it later repeats it, also under its own id and when its keys are long forgotten.
        """
        under_way, self._under_way = self._under_way, {}
        await self._marks.set(self._twins, {twin: f"{event}{_BEHIND}" for twin, event in under_way.items()})

    async def tidy(self) -> None:
        """Forget half of very many encrypted bytes, so that they do not become ever more."""
        twins = self._marks.all(self._twins)
        if len(twins) > _MOST_TWINS:
            await self._marks.set(self._twins, dict.fromkeys(list(twins)[: len(twins) // 2]))


def transaction(name: str) -> str:
    """Return the id that makes a homeserver take the same thing once, however often it is sent."""
    return f"cw{hashlib.sha256(name.encode()).hexdigest()[:40]}"
