"""Sessions taken away for good: the log first, then what lies in the session's directory."""

import asyncio
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from curtainwall.host.home import Home, private_directory
from curtainwall.model import HOUSE, CommandRefused, ExtensionNoted, SessionId, SessionQuery, SessionRow, TryLater, Who, session_stream
from curtainwall.operations.sessions import Sessions
from curtainwall.runtime import Stores
from curtainwall.session import lift
from curtainwall.store import LOSS, RESCUE, SqliteStore

_LET_GO_SECONDS = 6.0
"""A process that has nothing to do in a session any more lets go of it sooner than this."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of one session; without a reason against it, it is gone."""

    session: SessionId
    why_not: str | None
    about: str = ""
    aside: Path | None = None
    """Where its workspace lies now, where that may belong to a session whose log is lost."""


async def remove_sessions(sessions: Sessions, rows: Sequence[SessionRow], by: Who) -> list[Removal]:
    """Delete sessions one by one; one that is in use or has open approvals stays, and the others go all the same."""
    until = asyncio.get_running_loop().time() + _LET_GO_SECONDS
    files = _Files(sessions.store, sessions.home)
    done = [await _remove(sessions, row, by, until, files) for row in rows]
    if any(removal.why_not is None for removal in done) and isinstance(sessions.store, SqliteStore):
        sessions.store.collect_blobs()
    return done


async def _remove(sessions: Sessions, row: SessionRow, by: Who, until: float, files: "_Files") -> Removal:
    while True:
        try:
            await sessions.house.delete(row.session, by)
            break
        except (CommandRefused, TryLater) as refusal:
            if isinstance(refusal, CommandRefused) or asyncio.get_running_loop().time() > until:
                return Removal(row.session, str(refusal), row.name)
            await asyncio.sleep(0.1)
    _, aside = files.remove(row.session)
    return Removal(row.session, None, row.name, aside)


def remove_rest(store: Stores, home: Home) -> list[Removal]:
    """Remove the files of sessions whose deletion was cut off behind their logs, and tell whose there were."""
    if not isinstance(store, SqliteStore):
        return []
    files = _Files(store, home)
    gone = [session for session in store.deleted() if store.log.head(session_stream(session)) == 0]
    return [Removal(session, None, aside=aside) for session in gone for found, aside in (files.remove(session),) if found]


class _Files:
    """What lies in the directories of sessions that are deleted."""

    def __init__(self, store: Stores, home: Home) -> None:
        self._store = store
        self._home = home
        # INVARIANT: where sessions were lost, nobody can tell in whose workspace they worked, and none is deleted.
        notes = (lift(entry) for entry in store.log.read(HOUSE) if entry.kind == ExtensionNoted.__name__)
        self._were_lost = any(isinstance(event, ExtensionNoted) and event.extension in (RESCUE, LOSS) for event in notes)

    def remove(self, session: SessionId) -> tuple[bool, Path | None]:
        """Remove what lies in a session's directory, but for a workspace that another one works in, or may have worked in.

        Tell whether there was anything, and where such a workspace was put aside.
        """
        remove_tree(self._home.root / "run" / session)
        place = self._home.session(session)
        if not place.root.exists():
            return False, None
        if not self._store.index.sessions(SessionQuery(workspace=str(place.workspace), limit=1)):
            aside = self._put_aside(place.workspace, session) if self._were_lost else None
            remove_tree(place.root)
            return True, aside
        # A session that was reset left its workspace to the next one.
        left = [path for path in place.root.iterdir() if path != place.workspace]
        for path in left:
            remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        return bool(left), None

    def _put_aside(self, workspace: Path, session: SessionId) -> Path | None:
        if not workspace.is_dir() or not any(workspace.iterdir()):
            return None
        aside = self._home.root / "aside" / session
        private_directory(aside.parent)
        workspace.rename(aside)
        return aside


def remove_tree(path: Path) -> None:
    """Remove a directory, however deep, also where an agent took the rights away from its own files; links are removed, not followed.

    Somebody else may be removing the same: what is gone is as it should be.
    """
    if path.is_symlink() or not path.is_dir():
        return
    with suppress(FileNotFoundError):
        _open_up(str(path))
        while below := _without_files(str(path)):
            for directory in below:
                with suppress(FileNotFoundError):
                    _lift(directory, str(path))
        path.rmdir()


def _without_files(directory: str) -> list[str]:
    """Remove what is no directory from one, and return the directories in it."""
    with os.scandir(directory) as entries:
        kinds = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for path, is_directory in kinds:
        if not is_directory:
            with suppress(FileNotFoundError):
                os.unlink(path)
    return [path for path, is_directory in kinds if is_directory]


def _lift(directory: str, top: str) -> None:
    """Move the directories of a directory up to the top, so that no path ever gets too long, and remove it."""
    _open_up(directory)
    for inner in _without_files(directory):
        with suppress(FileNotFoundError):
            _open_up(inner)
            os.rename(inner, f"{top}/{secrets.token_hex(16)}")
    os.rmdir(directory)


def _open_up(directory: str) -> None:
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{opened}", 0o700)
    finally:
        os.close(opened)
