"""As root: what is made in somebody's directory belongs to them, so that they, and an agent that runs as them, can change it."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileOwner:
    """A user and a group of this machine."""

    user: int
    group: int


def owner_of(opened: int) -> FileOwner | None:
    """Return who owns an opened directory; None where that is us, or where we could give nothing away."""
    if os.geteuid() != 0:
        return None
    found = os.fstat(opened)
    return FileOwner(found.st_uid, found.st_gid) if found.st_uid else None


def give(opened: int, owner: FileOwner | None) -> None:
    """Give something that we made and have open to its owner."""
    if owner is not None:
        os.fchown(opened, owner.user, owner.group)


def hand_over(top: str | os.PathLike[str], owner: FileOwner) -> None:
    """Give what belongs to root beneath a directory, and the directory itself, to somebody, never following a link."""
    for _, directories, files, at in os.fwalk(top, follow_symlinks=False):
        for name in (*directories, *files):
            if os.stat(name, dir_fd=at, follow_symlinks=False).st_uid == 0:
                os.chown(name, owner.user, owner.group, dir_fd=at, follow_symlinks=False)
    if os.stat(top).st_uid == 0:
        os.chown(top, owner.user, owner.group)
