"""The rights of a container in its workspace: files that run later are guarded, and a stricter mode ends the container at once.

Existing files that run later are protected by mounts. New ones are found when the turn is over and set aside under a name that nothing
runs. Meanwhile a record of what was there is kept beside the session, so that after a crash the next turn finds what the agent left.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from curtainwall.agents.external.container.fleet import Fleet
from curtainwall.agents.external.container.spec import ContainerFolders
from curtainwall.facts import quoted
from curtainwall.host import (
    MOST_FIFOS,
    TooMany,
    TooManyFifos,
    WatchRecord,
    find_fifos,
    find_later,
    held_files_of,
    quarantine,
    take_owners_bits,
)
from curtainwall.model import (
    CurtainwallError,
    Feed,
    HeldFile,
    Mode,
    ModeChanged,
    SessionClosed,
    SessionId,
    TurnFailed,
    record,
    session_stream,
)

_PATIENCE: Final = 10.0


@record
class ContainerRights:
    """The rights of a container. Its mounts cannot change while it runs, so these hold until it ends."""

    changes_files: bool
    is_free: bool
    """It may also leave files in a project that run later on their own."""
    has_view: bool = False
    """It has a view of the project and not the project."""

    def exceed(self, others: "ContainerRights") -> bool:
        """Tell whether these rights allow anything that the others do not, or concern other files."""
        is_more = (self.changes_files and not others.changes_files) or (self.is_free and not others.is_free)
        return is_more or self.has_view is not others.has_view


def rights_in(folders: ContainerFolders, mode: Mode) -> ContainerRights:
    """Return what a container with these folders can do."""
    changes_files = not folders.is_readonly
    return ContainerRights(changes_files, changes_files and not folders.is_own and mode is Mode.BYPASS, has_view_in(folders, mode))


def has_view_in(folders: ContainerFolders, mode: Mode) -> bool:
    """Tell whether a container works on a view of the project in a mode."""
    return not folders.is_own and mode is Mode.REVIEW


RightsIn = Callable[[Mode], ContainerRights]
"""Returns the rights of a session's container in a mode."""


class RightsWatch:
    """Watches one session's container, from before its creation until it is gone."""

    def __init__(self, session: SessionId, rights: ContainerRights) -> None:
        self.rights = rights
        self.is_at_work = True
        self.taken_by: Mode | None = None
        """The mode that revoked the container."""
        self.fault = ""
        """Why the container could not be ended, if so."""
        self.work: asyncio.Timeout | None = None
        """The timeout that ends the work if its container could not be ended."""
        self._session = session
        self._is_gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self, feed: Feed, after: int, fleet: Fleet, rights_in_mode: RightsIn) -> "asyncio.Task[None]":
        """Watch from an entry of the log on."""
        work = self._watch(feed, after, fleet, rights_in_mode)
        self._task = asyncio.create_task(work, name=f"rights of the container of {self._session}")
        return self._task

    async def end(self) -> None:
        """Stop watching, after waiting for a container that is being revoked."""
        if self.taken_by is not None:
            await self._is_gone.wait()
        elif self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def settled(self) -> None:
        """Return once a revoked container is gone; at once if none was revoked."""
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
        # The caller ends a turn that is running, and its container with it.
        with suppress(CurtainwallError):
            await fleet.let_go(self._session)

    async def _take_away(self, fleet: Fleet) -> None:
        """End the container without a grace period, which a hostile agent would exploit."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await fleet.drop(self._session)
        except (CurtainwallError, TimeoutError) as fault:
            self.fault = str(fault) or f"the engine did not do so within {_PATIENCE:g} seconds"
            if self.work is not None and not self.work.expired():
                self.work.reschedule(asyncio.get_running_loop().time())
        finally:
            self._is_gone.set()


_RECORD = "watched.json"
_IF_YOURS = "if it was you who wrote that meanwhile, `curtainwall sessions held` says how to put it back"
_TOO_MANY = "the project has too many files to be watched, so it can only be read"


@dataclass(slots=True)
class GuardedFolders:
    """A session's folders while they are watched. `notes` are for people; more are added at the end."""

    folders: ContainerFolders
    notes: list[str] = field(default_factory=list[str])
    held: list[HeldFile] = field(default_factory=list[HeldFile])
    """The files that were set aside, for the log; the notes describe them."""
    is_watched: bool = False
    """New files are examined when the turn is over, and nothing may run there afterwards, unless it is watched on."""
    is_watched_on: bool = False
    """Whether the project is also watched after the turn, because its container keeps running; then the record stays."""


@asynccontextmanager
async def guard_project(
    folders: ContainerFolders, end_leftovers: Callable[[], Awaitable[object]], *, is_free: bool
) -> AsyncGenerator[GuardedFolders]:
    """Watch a project while an agent works in it. A session's own workspace, a view and a freely changeable project are not watched.

    `end_leftovers` ends containers that a crash of ours left, because what still runs in one could plant its file again.
    """
    record, root = folders.orientation.with_name(_RECORD), str(folders.workspace)
    left, held = list[str](), list[HeldFile]()
    if record.exists():
        await end_leftovers()
        left, held = await asyncio.to_thread(_taken_up, record)
    if not folders.is_own and folders.project is None:
        folders = replace(folders, hidden=await asyncio.to_thread(_services, root))
    if folders.is_own or folders.is_readonly or folders.project is not None or is_free:
        yield GuardedFolders(folders, left, held)
        return
    try:
        before = await asyncio.to_thread(find_later, root)
    except TooMany:
        yield GuardedFolders(replace(folders, is_readonly=True), [*left, _TOO_MANY], held)
        return
    fixed = before.fixed(git_works=True)
    # A separate mount keeps a git directory from being renamed and replaced.
    guard = GuardedFolders(replace(folders, pinned=tuple(before.git), fixed=fixed), left, held, is_watched=True)
    watched = WatchRecord(root, before, fixed)
    await asyncio.to_thread(watched.write, record)
    try:
        yield guard
    finally:
        look = _look if guard.is_watched_on else _set_aside
        notes, held = await asyncio.shield(asyncio.to_thread(look, record, watched))
        guard.notes += notes
        guard.held += held


def _services(root: str) -> tuple[str, ...]:
    """Return the sockets and pipes of a project, which must be hidden; raise `TurnFailed` if there are too many."""
    try:
        return find_fifos(root, sockets=True)
    except TooManyFifos:
        raise TurnFailed(f"the project holds more than {MOST_FIFOS} sockets and named pipes, too many to be kept from an agent") from None


def _taken_up(record: Path) -> tuple[list[str], list[HeldFile]]:
    """Set aside what a turn left behind when our process crashed, and return notes about it."""
    return _set_aside(record, WatchRecord.read(record))


def set_aside_left(orientation: Path, *, is_over: bool) -> list[HeldFile]:
    """Set aside what came into a watched project since the turn; if nothing runs there any more, stop watching."""
    record = orientation.with_name(_RECORD)
    if not record.exists():
        return []
    return (_set_aside if is_over else _look)(record, WatchRecord.read(record))[1]


def _set_aside(record: Path, watched: WatchRecord) -> tuple[list[str], list[HeldFile]]:
    """Set aside what runs on its own for the last time, and remove the record."""
    notes_and_files = _look(record, watched)
    record.unlink(missing_ok=True)
    return notes_and_files


def _look(record: Path, watched: WatchRecord) -> tuple[list[str], list[HeldFile]]:
    """Set aside files newer than the record that run on their own, and clear the bits that make others run a file as its owner."""
    held = quarantine(watched.root, watched.before, watched.fixed)
    # Deeply nested ones have been moved up by now, so all can be named. The disk's clock decides what is newer.
    taken = take_owners_bits(watched.root, record.stat().st_mtime_ns if record.exists() else 0)
    notes = [
        *(_note(path, aside) for path, aside in held),
        *([_IF_YOURS] if any(aside is not None for _, aside in held) else []),
        *(f"{quoted(path)} would run as its owner, whoever starts it; it no longer does" for path in taken),
    ]
    return notes, [*held_files_of(held, watched.before)]


def _note(path: str, aside: str | None) -> str:
    if aside is None:
        return f"{quoted(path)} would run by itself and could not be set aside; look at it before you work there"
    return f"{quoted(path)} would run by itself; it was renamed to {quoted(aside.rpartition('/')[2])}"
