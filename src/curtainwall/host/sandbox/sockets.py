"""Limits which Unix sockets and named pipes a confined family can reach, and builds the command that starts it behind the broker."""

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
from curtainwall.model import on_disk

_OWN_MOUNTS: Final = ("/tmp", "/dev/shm", HOME)  # noqa: S108 - inside
_TRIAL_SECONDS: Final = 30.0
# Connects to itself under an abstract name, which only works if the broker makes the connection.
_TRIAL: Final = """
import socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("")
listener.listen()
socket.socket(socket.AF_UNIX).connect(listener.getsockname())
"""


def with_sockets_held(confinement: Confinement) -> Confinement:
    """Adapt a confinement's sockets to this machine: none if there is no broker, any if nothing is mounted that could hold one."""
    if confinement.sockets is not Sockets.OWN:
        return confinement
    if not confinement.writable and not confinement.readable:
        return replace(confinement, sockets=Sockets.ANY)
    return confinement if can_broker() else replace(confinement, sockets=Sockets.NONE)


def broker_words(confinement: Confinement) -> list[str]:
    """Return the words that start a command behind the broker; empty if it needs none."""
    program = broker_program()
    if confinement.sockets is not Sockets.OWN or program is None:
        return []
    return _words(program, _given_sockets(confinement))


@cache
def can_broker() -> bool:
    """Tell whether this machine lets us make connections for other processes; tested once."""
    program = broker_program()
    if program is None:
        return False
    try:
        result = subprocess.run(
            [*_words(program, ""), sys.executable, "-I", "-S", "-c", _TRIAL], stdin=subprocess.DEVNULL, capture_output=True, env={},
            cwd="/", timeout=_TRIAL_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return result.returncode == 0


def _words(program: bytes, given: str) -> list[str]:
    # INVARIANT: the entry script imports nothing from the workspace, the environment or the user's site-packages.
    return [sys.executable, "-I", "-S", connect_broker.__file__, program.hex(), ":".join(_OWN_MOUNTS), given]


def _given_sockets(confinement: Confinement) -> str:
    """Return the sockets that were given by name, in the broker's format."""
    sockets: list[str] = []
    for path in confinement.given:
        with suppress(OSError):
            status = os.lstat(on_disk(path))
            if stat.S_ISSOCK(status.st_mode):
                sockets.append(f"{status.st_dev}-{status.st_ino}")
    return ",".join(sockets)


MOST_FIFOS: Final = 256
"""How many named pipes can be hidden; each costs a mount."""


class TooManyFifos(Exception):
    """A directory holds more named pipes than can be hidden."""


def find_fifos(root: str, *, sockets: bool = False) -> tuple[str, ...]:
    """Return every named pipe below a directory, and with `sockets` every socket too; raise `TooManyFifos`."""
    paths: list[str] = []
    pending = [root]
    while pending:
        directory = pending.pop()
        with suppress(OSError), os.scandir(on_disk(directory)) as listing:
            for entry in listing:
                path = f"{directory.rstrip('/')}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink() and _is_fifo(path, sockets=sockets):
                    paths.append(path)
                    if len(paths) > MOST_FIFOS:
                        raise TooManyFifos
    return tuple(paths)


def _is_fifo(path: str, *, sockets: bool) -> bool:
    try:
        mode = os.lstat(on_disk(path)).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or (sockets and stat.S_ISSOCK(mode))
