"""What shell and git get of a workspace: all of it, a project read-only, or a project in which what runs later is kept as it is."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakValueDictionary

from curtainwall.facts import is_beneath, quoted
from curtainwall.host import (
    MOST_FIFOS,
    Confinement,
    Later,
    Shares,
    Sockets,
    TooMany,
    TooManyFifos,
    charged_to,
    find_fifos,
    find_later,
    set_aside,
    told_of,
)
from curtainwall.model import HeldFile, Mode, Place, SessionId
from curtainwall.tools.running import CannotDo

CONFINED: Final = frozenset({"git", "shell"})
"""The servers whose tools need the confinement; where it is missing they must not be in the catalogue."""

OnHeld = Callable[[SessionId, tuple[HeldFile, ...]], Awaitable[None]]
"""Hears what was set aside: whoever sits at the keyboard may have written it."""

_TAKEN_BACK = "it runs later by itself, so it can only be written with `filesystem.write_file`, which asks"


@dataclass(frozen=True, slots=True)
class Opened:
    """A directory as a confined process gets it; `notes` are for the agent, and grow when the directory is looked at afterwards."""

    confinement: Confinement
    notes: list[str] = field(default_factory=list[str])


class Sandboxes:
    """Directories opened for confined processes.

    A project is given for writing to one process at a time: another one could exchange what is about to be mounted. So shell and git share
    one of these.
    """

    def __init__(self, on_held: OnHeld | None = None, shares: Shares | None = None) -> None:
        self._on_held = on_held
        self._shares = shares or Shares()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def charged_to(self, session: SessionId) -> AbstractContextManager[None]:
        """Have what is started in here count as the session's."""
        return charged_to(self._shares.of(session))

    @asynccontextmanager
    async def open(self, place: Place, root: str, *, write: bool, git_works: bool = False) -> AsyncGenerator[Opened]:
        """Give a directory, for reading or for writing as the session's standing allows; look at a project again when it is given back."""
        own = place.workspace.own and is_beneath(root, place.workspace.path)
        if own:
            # Nobody but its agents puts anything there, so its sockets and pipes are their own.
            given = Confinement(cwd=root, writable=(root,)) if write else Confinement(cwd=root, readable=((root, root),))
            yield Opened(replace(given, sockets=Sockets.ANY))
        elif not write:
            yield Opened(Confinement(cwd=root, readable=((root, root),), hidden=await _fifos(root)))
        elif place.mode is Mode.BYPASS:
            yield Opened(Confinement(cwd=root, writable=(root,), hidden=await _fifos(root)))
        else:
            workspace = place.workspace.path
            turn = self._turns.setdefault(workspace if is_beneath(root, workspace) else root, asyncio.Lock())
            async with turn:
                try:
                    before = await asyncio.to_thread(find_later, root)
                except TooMany:
                    note = "the project has too many files to be watched, so it is read-only here"
                    yield Opened(Confinement(cwd=root, readable=((root, root),), hidden=await _fifos(root)), [note])
                    return
                opened = _watched(root, before, await _fifos(root), git_works=git_works)
                try:
                    yield opened
                finally:
                    # Also where the process was cancelled: what it left behind must not stay.
                    opened.notes.extend(await asyncio.shield(self._looked_at_again(place.session, root, before, opened)))

    async def _looked_at_again(self, session: SessionId, root: str, before: Later, opened: Opened) -> list[str]:
        """Set aside what came or changed, have it heard of, and return what is to be said to the agent."""
        held = await asyncio.to_thread(set_aside, root, before, opened.confinement.fixed)
        if held and self._on_held is not None:
            await self._on_held(session, await asyncio.to_thread(told_of, held, before))
        return [_told(*one) for one in held]


async def _fifos(root: str) -> tuple[str, ...]:
    """Return the pipes of a project, which are to be hidden: whoever reads from one outside would hear what is written to it inside."""
    try:
        return await asyncio.to_thread(find_fifos, root)
    except TooManyFifos:
        raise CannotDo(f"{quoted(root)} holds more than {MOST_FIFOS} named pipes, too many to be kept from a command") from None


def _watched(root: str, before: Later, hidden: tuple[str, ...], *, git_works: bool) -> Opened:
    # A mount of its own keeps a git directory from being renamed and replaced by another.
    pinned = tuple(path for path in before.git if git_works)
    return Opened(Confinement(cwd=root, writable=(root, *pinned), fixed=before.fixed(git_works=git_works), hidden=hidden))


def _told(path: str, aside: str | None) -> str:
    if aside is None:
        return f"{quoted(path)} should not be there and could not be taken back; a human must look at it: {_TAKEN_BACK}"
    return f"{quoted(path)} was renamed to {quoted(aside.rpartition('/')[2])}: {_TAKEN_BACK}"
