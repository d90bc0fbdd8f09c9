"""The named pipes and sockets in a directory: a mount, read-only or not, keeps nobody from talking to whoever is behind them."""

import os
import stat
from contextlib import suppress
from typing import Final

MOST_FIFOS: Final = 256
"""How many can be hidden; each costs a mount."""


class TooManyFifos(Exception):
    """A directory holds more named pipes than can be hidden."""


def find_fifos(root: str, *, sockets: bool = False) -> tuple[str, ...]:
    """Return every named pipe below a directory, and every socket where those are wanted, too; raise `TooManyFifos`."""
    found: list[str] = []
    waiting = [root]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink() and _is_one(entry.path, sockets=sockets):
                    found.append(entry.path)
                    if len(found) > MOST_FIFOS:
                        raise TooManyFifos
    return tuple(found)


def _is_one(path: str, *, sockets: bool) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or (sockets and stat.S_ISSOCK(mode))
