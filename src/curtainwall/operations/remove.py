"""Deletes sessions: first the log, then the files in the session's directory."""

import asyncio
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from curtainwall.host.home import Home, private_directory
from curtainwall.model import (
    HOUSE,
    CommandRefused,
    ExtensionNoted,
    SessionId,
    SessionQuery,
    SessionRow,
    TryLater,
    Who,
    record,
    session_stream,
)
from curtainwall.operations.sessions import Sessions
from curtainwall.runtime import Stores
from curtainwall.session import lift
from curtainwall.store import LOSS, RESCUE, SqliteStore

_RELEASE_SECONDS = 6.0
"""A process that is done with a session releases it sooner than this."""


@record
class Removal:
    """The outcome for one session; it was deleted unless `why_not` says why not."""

    session: SessionId
    why_not: str | None
    about: str = ""
    aside: Path | None = None
    """Where its workspace is now, if it may belong to a session whose log is lost."""


async def remove_sessions(sessions: Sessions, rows: Sequence[SessionRow], by: Who, *, at_rest: bool = False) -> list[Removal]:
    """Delete sessions one by one; keep those that are in use or have open approvals, and with `at_rest` those with any open work.

    INVARIANT: files are deleted in a thread. Agents choose how many there are, and whoever serves must go on meanwhile.
    """
    deadline = asyncio.get_running_loop().time() + _RELEASE_SECONDS
    files = _Files(sessions.store, sessions.home)
    removals = [await _remove(sessions, row, by, deadline, files, at_rest=at_rest) for row in rows]
    if any(removal.why_not is None for removal in removals) and isinstance(sessions.store, SqliteStore):
        await asyncio.to_thread(sessions.store.collect_blobs)
    return removals


async def _remove(sessions: Sessions, row: SessionRow, by: Who, deadline: float, files: "_Files", *, at_rest: bool) -> Removal:
    while True:
        try:
            await sessions.registry.delete(row.session, by, at_rest=at_rest)
            break
        except (CommandRefused, TryLater) as refusal:
            if isinstance(refusal, CommandRefused) or asyncio.get_running_loop().time() > deadline:
                return Removal(row.session, str(refusal), row.name)
            await asyncio.sleep(0.1)
    _, aside = await asyncio.to_thread(files.remove, row.session)
    return Removal(row.session, None, row.name, aside)


def remove_rest(store: Stores, home: Home) -> list[Removal]:
    """Remove the files of sessions whose deletion was interrupted after their logs, and return those sessions."""
    if not isinstance(store, SqliteStore):
        return []
    files = _Files(store, home)
    gone = [session for session in store.deleted() if store.log.head(session_stream(session)) == 0]
    return [Removal(session, None, aside=aside) for session in gone for existed, aside in (files.remove(session),) if existed]


class _Files:
    """The files of deleted sessions."""

    def __init__(self, store: Stores, home: Home) -> None:
        self._store = store
        self._home = home
        # INVARIANT: if sessions were lost, we cannot tell which workspaces they used, so we delete none.
        notes = (lift(entry) for entry in store.log.read(HOUSE) if entry.kind == ExtensionNoted.__name__)
        self._were_lost = any(isinstance(event, ExtensionNoted) and event.extension in (RESCUE, LOSS) for event in notes)

    def remove(self, session: SessionId) -> tuple[bool, Path | None]:
        """Remove a session's directory, except for a workspace that another session uses or may have used.

        Return whether there was anything, and where such a workspace was moved.
        """
        remove_tree(self._home.root / "run" / session)
        if isinstance(self._store, SqliteStore) and self._store.snapshots is not None:
            self._store.snapshots.remove(session_stream(session))
        place = self._home.session(session)
        if not place.root.exists():
            return False, None
        if not self._store.index.sessions(SessionQuery(workspace=str(place.workspace), limit=1)):
            aside = self._put_aside(place.workspace, session) if self._were_lost else None
            remove_tree(place.root)
            return True, aside
        # A reset session leaves its workspace to the next one.
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
    """Remove a directory of any depth, even if an agent removed the permissions of its files; links are removed, not followed.

    Another process may be removing the same directory, so missing files are fine.
    """
    if path.is_symlink() or not path.is_dir():
        return
    with suppress(FileNotFoundError):
        _make_accessible(str(path))
        while directories := _remove_files(str(path)):
            for directory in directories:
                with suppress(FileNotFoundError):
                    _flatten(directory, str(path))
        path.rmdir()


def _remove_files(directory: str) -> list[str]:
    """Remove everything but directories from a directory, and return those."""
    with os.scandir(directory) as entries:
        kinds = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for path, is_directory in kinds:
        if not is_directory:
            with suppress(FileNotFoundError):
                os.unlink(path)
    return [path for path, is_directory in kinds if is_directory]


def _flatten(directory: str, top: str) -> None:
    """Move a directory's subdirectories to the top, so that no path gets too long, and remove it."""
    _make_accessible(directory)
    for inner in _remove_files(directory):
        with suppress(FileNotFoundError):
            _make_accessible(inner)
            os.rename(inner, f"{top}/{secrets.token_hex(16)}")
    os.rmdir(directory)


def _make_accessible(directory: str) -> None:
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{opened}", 0o700)
    finally:
        os.close(opened)
