"""Unix sockets and named pipes that a confined family could reach, and the words that put the broker in front of it."""

import os
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Final

from curtainwall.host.sandbox import connect_broker
from curtainwall.host.sandbox.confinement import HOME, Confinement, Sockets
from curtainwall.host.sandbox.filter import broker_program

_OWN_PLACES: Final = ("/tmp", "/dev/shm", HOME)  # noqa: S108 - inside
_TRIAL: Final = 30.0
# Connects to itself under an abstract name, which the broker has to do for it.
_TRY: Final = """
import socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("")
listener.listen()
socket.socket(socket.AF_UNIX).connect(listener.getsockname())
"""


def with_sockets_held(confinement: Confinement) -> Confinement:
    """Return a confinement with what this machine can hold of its sockets: none where there is no broker, any where there is no need."""
    if confinement.sockets is not Sockets.OWN:
        return confinement
    if not confinement.writable and not confinement.readable:
        return replace(confinement, sockets=Sockets.ANY)
    return confinement if can_broker() else replace(confinement, sockets=Sockets.NONE)


def broker_words(confinement: Confinement) -> list[str]:
    """Return what comes before a command that is to be started behind the broker; nothing where it needs none."""
    program = broker_program()
    if confinement.sockets is not Sockets.OWN or program is None:
        return []
    return _words(program, _given(confinement))


@cache
def can_broker() -> bool:
    """Tell whether this machine lets us make the connections of others; tried out once."""
    program = broker_program()
    if program is None:
        return False
    try:
        done = subprocess.run(
            [*_words(program, ""), sys.executable, "-I", "-S", "-c", _TRY], stdin=subprocess.DEVNULL, capture_output=True, env={}, cwd="/",
            timeout=_TRIAL, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _words(program: bytes, given: str) -> list[str]:
    # INVARIANT: nothing of the workspace, the environment or the user's site is imported on the way in.
    return [sys.executable, "-I", "-S", connect_broker.__file__, program.hex(), ":".join(_OWN_PLACES), given]


def _given(confinement: Confinement) -> str:
    """Return which sockets were given by name, as the broker takes them."""
    found: list[str] = []
    for path in confinement.given:
        with suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISSOCK(status.st_mode):
                found.append(f"{status.st_dev}-{status.st_ino}")
    return ",".join(found)


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
