"""Open workspaces for shell and git: fully writable, as a view of a project, read-only, or with the files that run later fixed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import field, replace
from typing import Final
from weakref import WeakValueDictionary

from curtainwall.facts import is_beneath, quoted
from curtainwall.host import (
    MOST_FIFOS,
    Confinement,
    HeldRecord,
    Shares,
    Sockets,
    TooMany,
    TooManyFifos,
    WatchRecord,
    WatchRecords,
    charged_to,
    find_fifos,
    find_later,
    held_files_of,
    quarantine,
)
from curtainwall.model import HeldFile, Mode, Place, SessionId, inside_view, record, works_on_view
from curtainwall.tools.runners import CannotDo

CONFINED: Final = frozenset({"git", "shell"})
"""The servers whose tools need the confinement; without it they must not be in the catalogue."""

OnHeld = Callable[[SessionId, tuple[HeldFile, ...]], Awaitable[None]]
"""Receives the files that were set aside; the user may have written them."""

_TAKEN_BACK = "it runs later by itself, so it can only be written with `filesystem.write_file`, which asks"


@record
class SandboxedDirectory:
    """A directory as a confined process sees it; `notes` are for the agent, and grow when the directory is checked afterwards."""

    confinement: Confinement
    notes: list[str] = field(default_factory=list[str])


class Sandboxes:
    """Directories opened for confined processes.

    Only one process at a time may write to a project: another one could swap what is about to be mounted. So shell and git share one
    instance. With `records`, files that a dead process left in a project are set aside when the project is next opened.
    """

    def __init__(self, on_held: OnHeld | None = None, shares: Shares | None = None, records: WatchRecords | None = None) -> None:
        self._on_held = on_held
        self._shares = shares or Shares()
        self._records = records
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def charged_to(self, session: SessionId) -> AbstractContextManager[None]:
        """Charge everything started inside the block to the session."""
        return charged_to(self._shares.of(session))

    @asynccontextmanager
    async def open(self, place: Place, root: str, *, write: bool, git_works: bool = False) -> AsyncGenerator[SandboxedDirectory]:
        """Open a directory for reading, or for writing as far as the session's mode allows; check a project again afterwards."""
        if inside_view(root) is not None:
            # INVARIANT: a command that writes here writes to the view. Nothing is set aside: its git directories are never applied, and a
            # human sees what runs later before it reaches the project. So commands may also run at the same time. Nor are pipes hidden:
            # those of an overlay are not those of the project below, and a copy has none of the project's.
            confined = Confinement(cwd=root, as_owner=True)
            yield SandboxedDirectory(replace(confined, writable=(root,)) if write else replace(confined, readable=((root, root),)))
            return
        if write and works_on_view(place.workspace, place.mode) and is_beneath(root, place.workspace.path):
            raise CannotDo("in review mode nothing changes the project itself")
        own = place.workspace.own and is_beneath(root, place.workspace.path)
        if own:
            # Only its agents write there, so its sockets and pipes belong to them.
            confined = Confinement(cwd=root, as_owner=True, sockets=Sockets.ANY)
            yield SandboxedDirectory(replace(confined, writable=(root,)) if write else replace(confined, readable=((root, root),)))
            return
        workspace = place.workspace.path
        turn = self._turns.setdefault(workspace if is_beneath(root, workspace) else root, asyncio.Lock())
        async with turn:
            notes = await asyncio.shield(self._set_aside_abandoned(place.session, root))
        if not write:
            yield SandboxedDirectory(Confinement(cwd=root, as_owner=True, readable=((root, root),), hidden=await _fifos(root)), notes)
        elif place.mode is Mode.BYPASS:
            yield SandboxedDirectory(Confinement(cwd=root, as_owner=True, writable=(root,), hidden=await _fifos(root)), notes)
        else:
            async with turn:
                try:
                    before = await asyncio.to_thread(find_later, root)
                except TooMany:
                    note = "the project has too many files to be watched, so it is read-only here"
                    yield SandboxedDirectory(
                        Confinement(cwd=root, as_owner=True, readable=((root, root),), hidden=await _fifos(root)), [*notes, note]
                    )
                    return
                # A separate mount keeps a git directory from being renamed and replaced.
                pinned = tuple(path for path in before.git if git_works)
                fixed = before.fixed(git_works=git_works)
                opened = SandboxedDirectory(
                    Confinement(cwd=root, as_owner=True, writable=(root, *pinned), fixed=fixed, hidden=await _fifos(root)), notes
                )
                watched = WatchRecord(root, before, fixed)
                held = await self._record(watched)
                try:
                    yield opened
                finally:
                    # Even after cancellation, files that the process left behind must not stay.
                    opened.notes.extend(await asyncio.shield(self._set_aside_changes(place.session, watched, held)))

    async def _record(self, watched: WatchRecord) -> HeldRecord | None:
        try:
            return None if self._records is None else await asyncio.to_thread(self._records.add, watched)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CannotDo(
                f"{quoted(watched.root)} is not given for writing, because nothing can be written down of it: {reason}"
            ) from None

    async def _set_aside_abandoned(self, session: SessionId, root: str) -> list[str]:
        """Set aside what our dead processes left in a project, and return notes for the agent."""
        notes = list[str]()
        for watched, held in () if self._records is None else await asyncio.to_thread(list, self._records.abandoned(root)):
            notes += await self._set_aside_changes(session, watched, held)
        return notes

    async def _set_aside_changes(self, session: SessionId, watched: WatchRecord, record: HeldRecord | None) -> list[str]:
        """Set aside files that were added or changed, report them, and return notes for the agent."""
        held = await asyncio.to_thread(quarantine, watched.root, watched.before, watched.fixed)
        if record is not None:
            await asyncio.to_thread(record.remove)
        if held and self._on_held is not None:
            await self._on_held(session, await asyncio.to_thread(held_files_of, held, watched.before))
        return [_note(*one) for one in held]


async def _fifos(root: str) -> tuple[str, ...]:
    """Return the pipes of a project, which must be hidden: a reader outside would receive what is written inside."""
    try:
        return await asyncio.to_thread(find_fifos, root)
    except TooManyFifos:
        raise CannotDo(f"{quoted(root)} holds more than {MOST_FIFOS} named pipes, too many to be kept from a command") from None


def _note(path: str, aside: str | None) -> str:
    if aside is None:
        return f"{quoted(path)} should not be there and could not be taken back; a human must look at it: {_TAKEN_BACK}"
    return f"{quoted(path)} was renamed to {quoted(aside.rpartition('/')[2])}: {_TAKEN_BACK}"
