"""The watch over a turn in a container: paused while a human is asked, stopped when it fills the disk, and recorded as it goes."""

import asyncio
import os
import shutil
import stat
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final

from curtainwall.agents.external import TurnWatch
from curtainwall.agents.external.container.engine import Engine, require_free_space
from curtainwall.agents.external.container.spec import ContainerFolders, ContainerLimits
from curtainwall.facts import quoted
from curtainwall.model import CurtainwallError, TurnFailed

_MIB: Final = 1024**2
_BLOCK: Final = 512
_LEAST: Final = 4096
"""The least size that an entry counts for, so that many empty files count too."""
_DEEPEST: Final = 128
_EVERY: Final = 5.0
_SPARING: Final = 20.0
"""The pause after a measurement, as a multiple of its duration."""
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Unmeasurable(Exception):
    """A directory cannot be read; the message names it."""


class DiskUse:
    """The combined size of the workspace and the agent's home; in a project, only what the turn adds counts."""

    def __init__(self, folders: ContainerFolders, most: int) -> None:
        self._folders = folders
        self._most = most
        self._before = 0 if folders.is_own and not folders.shared else None
        self._measuring: asyncio.Task[int] | None = None
        self._is_over = threading.Event()
        self._next = 0.0
        self._free = 0

    @property
    def is_measuring(self) -> bool:
        """Tell whether a measurement has started and is not evaluated yet."""
        return self._measuring is not None

    async def look(self) -> None:
        """Start a measurement if it is due, and raise `TurnFailed` if the last one exceeded the limit."""
        if self._measuring is None and self._is_due():
            self._measuring = asyncio.create_task(asyncio.to_thread(self._measure))
        if self._measuring is not None and self._measuring.done():
            measured, self._measuring = self._measuring, None
            self._judge(measured)

    async def close(self) -> None:
        """Stop measuring."""
        self._is_over.set()
        if self._measuring is not None:
            await asyncio.gather(self._measuring, return_exceptions=True)

    def _is_due(self) -> bool:
        free = shutil.disk_usage(self._folders.state).free
        # Measure earlier if the disk fills quickly.
        is_due = time.monotonic() >= self._next or self._free - free > self._most // 16
        self._free = free if is_due else self._free
        return is_due

    def _measure(self) -> int:
        began = time.monotonic()
        most = None if self._before is None else self._before + self._most
        total = 0
        for size in _sizes(self._folders, self._is_over):
            total += size
            if most is not None and total > most:
                break
        took = time.monotonic() - began
        self._next = time.monotonic() + max(_EVERY, _SPARING * took)
        return total

    def _judge(self, measured: "asyncio.Task[int]") -> None:
        folders, most = self._folders, self._most // _MIB
        try:
            total = measured.result()
        except Unmeasurable as fault:
            raise TurnFailed(f"the disk space of the session cannot be measured: {fault}; give it back, or delete it") from None
        if self._before is None:
            self._before = total
        elif total > self._before + self._most:
            where = f"{quoted(str(folders.workspace))} or {quoted(str(folders.state))}"
            what = (
                "the workspace and the agent's home hold"
                if folders.is_own and not folders.shared
                else "in this turn the agent added to the project and its home"
            )
            raise TurnFailed(
                f"the disk space of the session is used up: {what} more than {most} MB; delete files in {where}, or raise {_SETTING}"
            )


_SETTING: Final = "`disk` in [containers]"


def _sizes(folders: ContainerFolders, is_over: threading.Event) -> Iterator[int]:
    """Yield the size of every entry in the workspace and the agent's home; hard links count once."""
    seen = set[tuple[int, int]]()
    for top in (folders.workspace, folders.state, *folders.shared):
        for about in _walk(str(top)):
            if is_over.is_set():
                return
            if about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode):
                if (about.st_dev, about.st_ino) in seen:
                    continue
                seen.add((about.st_dev, about.st_ino))
            yield max(about.st_blocks * _BLOCK, _LEAST)


class _Level:
    """An open directory, and how far it has been read."""

    def __init__(self, name: str, above: int | None) -> None:
        self.name = name
        self.descriptor = os.open(name, _DIRECTORY, dir_fd=above)
        self._entries = os.scandir(self.descriptor)

    def next(self) -> os.DirEntry[str] | None:
        """Return the next entry; None at the end."""
        return next(self._entries, None)

    def close(self) -> None:
        """Close it."""
        self._entries.close()
        os.close(self.descriptor)


def _walk(top: str) -> Iterator[os.stat_result]:
    """Yield everything beneath a directory, by descriptor and without following links; entries that vanish are skipped."""
    levels = list[_Level]()
    try:
        _enter(levels, top, None)
        while levels:
            entry = levels[-1].next()
            if entry is None:
                levels.pop().close()
                continue
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            yield about
            if stat.S_ISDIR(about.st_mode):
                _enter(levels, entry.name, about.st_uid)
    finally:
        for level in levels:
            level.close()


def _enter(levels: list[_Level], name: str, owner: int | None) -> None:
    """Descend into a directory unless it is gone or not ours."""
    path = "/".join((*(level.name for level in levels[:4]), *(("…",) if len(levels) > 4 else ()), name))
    if len(levels) >= _DEEPEST:
        raise Unmeasurable(f"more than {_DEEPEST} directories lie in each other at {quoted(path)}")
    try:
        levels.append(_Level(name, levels[-1].descriptor if levels else None))
    except PermissionError:
        # As an ordinary user we share the agent's user id, so a directory that it closed to itself is closed to us.
        if owner == os.geteuid():
            raise Unmeasurable(f"{quoted(path)} is closed to its own user") from None
    except OSError:
        return


_WRITTEN_EVERY: Final = 30.0
_ROOM_EVERY: Final = 1.0

Write = Callable[[float], Awaitable[None]]
"""Records seconds of work."""


class ContainerTurnWatch(TurnWatch):
    """Pauses the container while a human is asked and the agent is silent; stops the turn if the agent fills the disk."""

    def __init__(self, engine: Engine, container: str, limits: ContainerLimits, write: Write, folders: ContainerFolders) -> None:
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
        """Record the work that is not recorded yet."""
        seconds, self._written = max(0.0, self.worked - self._written), self.worked
        await self._write(seconds)

    def next_look(self) -> float | None:
        """Return the seconds until the time is up, the disk may be full, or the container can be paused."""
        if not self.asked:
            return min(_ROOM_EVERY, self.left)
        return None if self._is_paused else min(_ROOM_EVERY, max(0.0, self.last_sign_at + self._pause_after - time.monotonic()))

    async def look(self) -> None:
        """Pause or resume the container, and record the work done.

        Raise `TryLater` where a disk is full, and `TurnFailed` where the session keeps too much on it.
        """
        require_free_space(self._free_disk, *self._places)
        await self._disk.look()
        await self._pause_or_go_on()
        if self.worked - self._written >= _WRITTEN_EVERY:
            await self.write_down()

    async def close(self) -> None:
        """Stop watching."""
        await self._disk.close()

    async def _pause_or_go_on(self) -> None:
        is_quiet = time.monotonic() - self.last_sign_at >= self._pause_after
        with suppress(CurtainwallError):
            if self.asked and is_quiet and not self._is_paused:
                self._is_paused = True
                await self._engine.pause(self._container)
            elif not self.asked and self._is_paused:
                self._is_paused = False
                self.note_life()
                await self._engine.resume(self._container)
