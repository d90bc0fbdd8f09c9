"""Files of a project that run later by themselves: an agent that may change the project can neither change these nor leave new ones behind.

What is there is kept by mounts. What is new is found when the turn is over and set aside under a name that nothing runs. What was there is
written down beside the session meanwhile, so that after a crash of ours its next turn finds what the agent left.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from curtainwall.agents.external.container.terms import Folders
from curtainwall.facts import quoted
from curtainwall.host import MOST_FIFOS, TooMany, TooManyFifos, WatchRecord, find_fifos, find_later, set_aside, take_owners_bits, told_of
from curtainwall.model import HeldFile, TurnFailed

_RECORD = "watched.json"
_IF_YOURS = "if it was you who wrote that meanwhile, `curtainwall sessions held` says how to put it back"
_TOO_MANY = "the project has too many files to be watched, so it can only be read"


@dataclass(slots=True)
class Guarded:
    """A session's folders while they are watched; `notes` are for people, and there are more of them at the end."""

    folders: Folders
    notes: list[str] = field(default_factory=list[str])
    held: list[HeldFile] = field(default_factory=list[HeldFile])
    """What was set aside, for the log; the notes tell of it."""
    is_watched: bool = False
    """What came will be looked at when the turn is over; nothing may run there afterwards."""


@asynccontextmanager
async def guarded(folders: Folders, end_leftovers: Callable[[], Awaitable[object]], *, is_free: bool) -> AsyncGenerator[Guarded]:
    """Watch a project while an agent works in it; a session's own workspace, and one that is free to be changed, need no watching.

    `end_leftovers` ends containers that a crash of ours left, because what still runs in one could plant its file again.
    """
    record, root = folders.orientation.with_name(_RECORD), str(folders.workspace)
    left, held = list[str](), list[HeldFile]()
    if record.exists():
        await end_leftovers()
        left, held = await asyncio.to_thread(_taken_up, record)
    if not folders.is_own:
        folders = replace(folders, hidden=await asyncio.to_thread(_services, root))
    if folders.is_own or folders.is_readonly or is_free:
        yield Guarded(folders, left, held)
        return
    try:
        before = await asyncio.to_thread(find_later, root)
    except TooMany:
        yield Guarded(replace(folders, is_readonly=True), [*left, _TOO_MANY], held)
        return
    fixed = before.fixed(git_works=True)
    # A mount of its own keeps a git directory from being renamed and replaced by another.
    guard = Guarded(replace(folders, pinned=tuple(before.git), fixed=fixed), left, held, is_watched=True)
    watched = WatchRecord(root, before, fixed)
    await asyncio.to_thread(watched.write, record)
    try:
        yield guard
    finally:
        notes, held = await asyncio.shield(asyncio.to_thread(_looked_through, record, watched))
        guard.notes += notes
        guard.held += held


def _services(root: str) -> tuple[str, ...]:
    """Return the sockets and pipes of a project, which are to be hidden; raise `TurnFailed` where there are too many."""
    try:
        return find_fifos(root, sockets=True)
    except TooManyFifos:
        raise TurnFailed(f"the project holds more than {MOST_FIFOS} sockets and named pipes, too many to be kept from an agent") from None


def _taken_up(record: Path) -> tuple[list[str], list[HeldFile]]:
    """Set aside what came since a turn that broke off with our process, and return what is to be said of it."""
    return _looked_through(record, WatchRecord.read(record))


def _looked_through(record: Path, watched: WatchRecord) -> tuple[list[str], list[HeldFile]]:
    """Set aside what came since a record was written and runs by itself, and take from files what has others run them as their owner."""
    held = set_aside(watched.root, watched.before, watched.fixed)
    # Deep ones have been lifted by now, so that all can be named. The disk's own clock tells what came since.
    taken = take_owners_bits(watched.root, record.stat().st_mtime_ns if record.exists() else 0)
    record.unlink(missing_ok=True)
    notes = [
        *(_told(path, aside) for path, aside in held),
        *([_IF_YOURS] if any(aside is not None for _, aside in held) else []),
        *(f"{quoted(path)} would run as its owner, whoever starts it; it no longer does" for path in taken),
    ]
    return notes, [*told_of(held, watched.before)]


def _told(path: str, aside: str | None) -> str:
    if aside is None:
        return f"{quoted(path)} would run by itself and could not be set aside; look at it before you work there"
    return f"{quoted(path)} would run by itself; it was renamed to {quoted(aside.rpartition('/')[2])}"
