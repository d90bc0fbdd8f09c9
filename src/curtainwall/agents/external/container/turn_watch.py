"""The watch over a turn in a container: it is paused while a human is asked, it must not fill the disk, and its work is written down."""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from curtainwall.agents.external import TurnWatch
from curtainwall.agents.external.container.disk import DiskUse
from curtainwall.agents.external.container.engine import Engine, see_room
from curtainwall.agents.external.container.terms import Folders, Limits
from curtainwall.model import CurtainwallError

_WRITTEN_EVERY: Final = 30.0
_ROOM_EVERY: Final = 1.0

Write = Callable[[float], Awaitable[None]]
"""Writes down seconds of work."""


class Watch(TurnWatch):
    """Pauses the container while a human is asked and the agent is silent; stops the turn where the agent fills the disk."""

    def __init__(self, engine: Engine, container: str, limits: Limits, write: Write, folders: Folders) -> None:
        super().__init__(limits.turn)
        self._engine = engine
        self._container = container
        self._pause_after = limits.pause_after
        self._write = write
        self._free_disk = limits.free_disk
        self._places = folders.workspace, folders.state
        self._disk = DiskUse(folders, limits.disk)
        self._written = 0.0
        self._is_paused = False

    async def write_down(self) -> None:
        """Have the work so far written down, as far as it is not."""
        seconds, self._written = max(0.0, self.worked - self._written), self.worked
        await self._write(seconds)

    def next_look(self) -> float | None:
        """Return the seconds until the time is up, there may be no room any more, or the container can be paused."""
        if not self.asked:
            return min(_ROOM_EVERY, self.left)
        return None if self._is_paused else min(_ROOM_EVERY, max(0.0, self.heard_at + self._pause_after - time.monotonic()))

    async def look(self) -> None:
        """Pause the container or let it go on, and write down what was worked.

        Raise `TryLater` where a disk is full, and `TurnFailed` where the session keeps too much on it.
        """
        see_room(self._free_disk, *self._places)
        await self._disk.look()
        await self._pause_or_go_on()
        if self.worked - self._written >= _WRITTEN_EVERY:
            await self.write_down()

    async def close(self) -> None:
        """Look no longer."""
        await self._disk.close()

    async def _pause_or_go_on(self) -> None:
        is_quiet = time.monotonic() - self.heard_at >= self._pause_after
        with suppress(CurtainwallError):
            if self.asked and is_quiet and not self._is_paused:
                self._is_paused = True
                await self._engine.pause(self._container)
            elif not self.asked and self._is_paused:
                self._is_paused = False
                self.heard()
                await self._engine.resume(self._container)
