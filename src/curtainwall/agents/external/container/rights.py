"""What a container can do to its workspace: a mode that allows less ends it at once, at work or at rest, and so does the session's end."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from curtainwall.agents.external.container.fleet import Fleet
from curtainwall.agents.external.container.terms import Folders
from curtainwall.model import CurtainwallError, Feed, Mode, ModeChanged, SessionClosed, SessionId, session_stream

_PATIENCE: Final = 10.0


@dataclass(frozen=True, slots=True)
class Rights:
    """Mounts cannot be changed while a container runs, so these are its rights until it ends."""

    changes_files: bool
    is_free: bool
    """It may also leave in a project what runs later by itself."""

    def exceed(self, others: "Rights") -> bool:
        """Tell whether there is anything that these allow and the others do not."""
        return (self.changes_files and not others.changes_files) or (self.is_free and not others.is_free)


def rights_in(folders: Folders, mode: Mode) -> Rights:
    """Return what a container with these folders can do."""
    changes_files = not folders.is_readonly
    return Rights(changes_files, changes_files and not folders.is_own and mode is Mode.BYPASS)


RightsIn = Callable[[Mode], Rights]
"""Tells what a session's container may do in a mode."""


class Ward:
    """The watch over one session's container, from before it is there until it is gone."""

    def __init__(self, session: SessionId, rights: Rights) -> None:
        self.rights = rights
        self.is_at_work = True
        self.taken_by: Mode | None = None
        """The mode that took the container away."""
        self.fault = ""
        """Why the container could not be ended, where it could not."""
        self.work: asyncio.Timeout | None = None
        """How work is ended whose container could not be."""
        self._session = session
        self._is_gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self, feed: Feed, after: int, fleet: Fleet, rights_in_mode: RightsIn) -> "asyncio.Task[None]":
        """Watch from an entry of the log on."""
        work = self._watch(feed, after, fleet, rights_in_mode)
        self._task = asyncio.create_task(work, name=f"rights of the container of {self._session}")
        return self._task

    async def end(self) -> None:
        """Watch no longer; what is being taken away is waited for."""
        if self.taken_by is not None:
            await self._is_gone.wait()
        elif self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def settled(self) -> None:
        """Return when a container that was taken away is gone; at once where none was."""
        if self.taken_by is not None:
            await self._is_gone.wait()

    async def _watch(self, feed: Feed, after: int, fleet: Fleet, rights_in_mode: RightsIn) -> None:
        async for recorded in feed.follow(session_stream(self._session), after):
            match recorded.event:
                case ModeChanged() as event if self.rights.exceed(rights_in_mode(event.mode)):
                    self.taken_by = event.mode
                    await self._take_away(fleet)
                    return
                case SessionClosed():
                    break
                case _ if not self.is_at_work and not fleet.has(self._session):
                    return
                case _:
                    continue
        # A turn at work is ended by whoever lets it work, and its container with it.
        with suppress(CurtainwallError):
            await fleet.let_go(self._session)

    async def _take_away(self, fleet: Fleet) -> None:
        """End the container. No time is given to end well: whoever works against the person has waited for just that."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await fleet.drop(self._session)
        except (CurtainwallError, TimeoutError) as fault:
            self.fault = str(fault) or f"the engine did not do so within {_PATIENCE:g} seconds"
            if self.work is not None and not self.work.expired():
                self.work.reschedule(asyncio.get_running_loop().time())
        finally:
            self._is_gone.set()
