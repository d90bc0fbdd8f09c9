"""Files of a project that run later by themselves: an agent that may change the project can neither change these nor leave new ones behind.

What is there is kept by mounts. What is new is found when the turn is over and set aside under a name that nothing runs.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from curtainwall.agents.container.terms import Folders
from curtainwall.facts import quoted
from curtainwall.host import TooMany, find_later, set_aside

_TOO_MANY = "the project has too many files to be watched, so it can only be read"


@dataclass(slots=True)
class Guarded:
    """A session's folders while they are watched; `notes` are for people, and there are more of them at the end."""

    folders: Folders
    notes: list[str] = field(default_factory=list[str])
    is_watched: bool = False
    """What came will be looked at when the turn is over; nothing may run there afterwards."""


@asynccontextmanager
async def guarded(folders: Folders, *, is_free: bool) -> AsyncGenerator[Guarded]:
    """Watch a project while an agent works in it; a session's own workspace, and one that is free to be changed, need no watching."""
    if folders.is_own or folders.is_readonly or is_free:
        yield Guarded(folders)
        return
    root = str(folders.workspace)
    try:
        before = await asyncio.to_thread(find_later, root)
    except TooMany:
        yield Guarded(replace(folders, is_readonly=True), [_TOO_MANY])
        return
    fixed = before.fixed(git_works=True)
    # A mount of its own keeps a git directory from being renamed and replaced by another.
    guard = Guarded(replace(folders, pinned=tuple(before.git), fixed=fixed), is_watched=True)
    try:
        yield guard
    finally:
        held = await asyncio.shield(asyncio.to_thread(set_aside, root, before, fixed))
        guard.notes += (_told(path, aside) for path, aside in held)


def _told(path: str, aside: str | None) -> str:
    if aside is None:
        return f"{quoted(path)} would run by itself and could not be set aside; look at it before you work there"
    return f"{quoted(path)} would run by itself; it was renamed to {quoted(aside.rpartition('/')[2])}"
