"""Whose the mounted directories are: an agent never is root, and must be able to write where it may."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from curtainwall.agents.external.container.inside import HOME
from curtainwall.agents.external.container.terms import Folders, Program
from curtainwall.facts import quoted
from curtainwall.host import FileOwner, hand_over
from curtainwall.model import TryLater

_NOBODY_ELSE: Final = 1000
"""Who an agent is where everything belongs to root."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def settle(folders: Folders) -> tuple[int, int]:
    """Return the user and group that the agent is, after seeing that the directories are theirs; raise `TryLater`."""
    for made in (folders.orientation, folders.run, folders.state):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Both are read-only inside. What is above them is closed to others, so that only the mounts show them.
    folders.orientation.chmod(0o755)
    folders.run.chmod(0o755)
    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    there = folders.workspace.stat()
    user, group = there.st_uid or _NOBODY_ELSE, there.st_gid or _NOBODY_ELSE
    if there.st_uid == 0 and not folders.is_own and not folders.is_readonly:
        how = f"`chown -R {user} {folders.workspace}`, or plan mode to read it"
        raise TryLater(
            f"the project {quoted(str(folders.workspace))} belongs to root, and an agent never is root; give it to a user: {how}"
        )
    if folders.is_own:
        hand_over(folders.workspace, FileOwner(user, group))
    hand_over(folders.state, FileOwner(user, group))
    return user, group


def mountable(folders: Folders, lent: Iterable[Program], user: int, group: int) -> Iterator[Program]:
    """Yield what can be mounted into the agent's home, after making its place there as the agent's own.

    Otherwise the engine would make the directories above it, as root's. Where the agent has put something else, nothing is mounted.
    """
    for program in lent:
        with suppress(OSError):
            _make_directories(folders.state, program.inside.removeprefix(f"{HOME}/").split("/"), user, group)
            yield program


def _make_directories(top: Path, names: list[str], user: int, group: int) -> None:
    """Make directories in each other for a user, never following a link; raise `OSError` where something else is in the way."""
    at = os.open(top, _DIRECTORY)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
            inner = os.open(name, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
            if os.getuid() == 0 and os.fstat(at).st_uid == 0:
                os.fchown(at, user, group)
    finally:
        os.close(at)


def write_orientation(folders: Folders, files: dict[str, str]) -> None:
    """Write files that the agent reads; each is whole or as it was before."""
    for name, text in files.items():
        hidden = folders.orientation / f".{name}.new"
        hidden.write_text(text, encoding="utf-8")
        hidden.chmod(0o644)
        hidden.rename(folders.orientation / name)
