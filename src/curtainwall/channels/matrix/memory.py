"""The channel's memory across restarts, besides the log: its sync position, its sent messages, and those not decrypted yet."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Final, cast

from curtainwall.channels.matrix.events import EncryptedEvent, head_of, table
from curtainwall.model import Marks, SessionId, record

CHANNEL: Final = "matrix"
_MOST_SEALED: Final = 500
_MOST_TWINS: Final = 100_000
_DONE: Final = " done"
"""A suffix that no event id has."""


@record
class DepartedRoom:
    """A room that we have left: why, and the sessions whose asks were shown there."""

    why: str
    sessions: tuple[SessionId, ...] = ()


class Memory:
    """A durable map from names to values; `user` keeps accounts apart."""

    def __init__(self, marks: Marks, user: str) -> None:
        self._marks = marks
        self._scope = f"{CHANNEL} {user}"
        self._twins = f"{CHANNEL} {user} twins"
        self._unsettled: dict[str, str] = {}

    def get(self, name: str) -> str | None:
        """Return a stored value."""
        return self._marks.get(self._scope, name)

    async def set(self, values: Mapping[str, str | None]) -> None:
        """Store these values together; None deletes."""
        await self._marks.set(self._scope, values)

    def named(self, start: str) -> Mapping[str, str]:
        """Return everything whose name starts with a prefix."""
        return {name: value for name, value in self._marks.all(self._scope).items() if name.startswith(start)}

    @property
    def not_let_in(self) -> str:
        """Why the homeserver refused the last login; "" if it did not."""
        return self.get("not let in") or ""

    async def keep_not_let_in(self, why: str) -> None:
        """Store why the login was refused; "" if it was accepted."""
        if why != self.not_let_in:
            await self.set({"not let in": why or None})

    def left(self) -> Mapping[str, DepartedRoom]:
        """Return the rooms that we have left."""
        stored = {name.removeprefix("left "): table(json.loads(value)) for name, value in self.named("left ").items()}
        return {
            room: DepartedRoom(str(entry["why"]), tuple(map(SessionId, cast("list[str]", entry["sessions"]))))
            for room, entry in stored.items()
        }

    async def keep_left(self, room: str, left: DepartedRoom | None) -> None:
        """Store that we have left a room; None if we are back."""
        value = None if left is None else json.dumps({"why": left.why, "sessions": left.sessions})
        await self.set({f"left {room}": value})

    # What could not be opened yet

    async def keep_sealed(self, sealed: EncryptedEvent) -> None:
        """Keep an encrypted event until its key arrives; only the newest if there are very many."""
        stored = self.named("sealed ")
        values: dict[str, str | None] = dict.fromkeys(list(stored)[: max(len(stored) + 1 - _MOST_SEALED, 0)])
        values[f"sealed {sealed.head.event}"] = json.dumps({"room": sealed.head.room, "raw": sealed.raw})
        await self.set(values)

    def sealed(self) -> Iterable[EncryptedEvent]:
        """Return the events that still wait for their key."""
        for value in self.named("sealed ").values():
            stored = table(json.loads(value))
            raw, room = table(stored.get("raw")), str(stored.get("room"))
            head = head_of(raw, room)
            if head is not None:
                yield EncryptedEvent(head, raw)

    async def drop_sealed(self, sealed: EncryptedEvent) -> None:
        """Forget an event that was decrypted."""
        await self.set({f"sealed {sealed.head.event}": None})

    # What was encrypted once

    async def is_repeated(self, twin: str, event: str) -> bool:
        """Tell whether the same encrypted bytes came before, in another event or in one that is already done."""
        earlier = self._marks.get(self._twins, twin)
        if earlier is None:
            await self._marks.set(self._twins, {twin: event})
        if earlier not in (None, event):
            return True
        self._unsettled[twin] = event
        return False

    async def settle(self) -> None:
        """Mark what was decrypted since the last call as done.

        INVARIANT: called after all of it is done and before the sync token is stored. A crash before this call brings the events again, to
        be completed. Bytes that come later are a repetition, even under the same id and after their keys are forgotten.
        """
        unsettled, self._unsettled = self._unsettled, {}
        await self._marks.set(self._twins, {twin: f"{event}{_DONE}" for twin, event in unsettled.items()})

    async def tidy(self) -> None:
        """If there are very many digests of encrypted bytes, forget the older half."""
        twins = self._marks.all(self._twins)
        if len(twins) > _MOST_TWINS:
            await self._marks.set(self._twins, dict.fromkeys(list(twins)[: len(twins) // 2]))


def transaction(name: str) -> str:
    """Return the transaction id that makes a homeserver accept the same message once, however often it is sent."""
    return f"cw{hashlib.sha256(name.encode()).hexdigest()[:40]}"
