"""A Unix socket that has its mode and owner before it has its name, and is taken away only while it is ours."""

import contextlib
import os
import secrets
import socket
from pathlib import Path
from typing import Final

from curtainwall.facts import quoted
from curtainwall.model import Broken, TryLater

BACKLOG: Final = 64
# `sockaddr_un.sun_path` has 108 bytes, and the last one is NUL.
_LONGEST_PATH: Final = 107


def listen(path: Path, mode: int, owner: int | None) -> tuple[socket.socket, int]:
    """Return a listening socket and the inode of its file; raise `TryLater` where another process serves it, `Broken` where none can be."""
    hidden = path.with_name(f".{secrets.token_hex(2)}")
    if max(len(os.fsencode(path)), len(os.fsencode(hidden))) > _LONGEST_PATH:
        raise Broken(f"the path {quoted(str(path))} is too long for a socket: {_LONGEST_PATH} bytes are the most")
    if _is_served(path):
        raise TryLater(f"another process serves {quoted(str(path))}; use that one or stop it")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(hidden))
        hidden.chmod(mode)
        if owner is not None:
            os.chown(hidden, owner, -1)
        listener.listen(BACKLOG)
        inode = hidden.stat().st_ino
        hidden.rename(path)
    except OSError as fault:
        listener.close()
        hidden.unlink(missing_ok=True)
        raise Broken(f"the socket {quoted(str(path))} cannot be made: {fault.strerror or fault}") from None
    listener.setblocking(False)
    return listener, inode


def remove(path: Path, inode: int) -> None:
    """Take our file away, unless another process has put its own there meanwhile."""
    with contextlib.suppress(OSError):
        if path.stat().st_ino == inode:
            path.unlink()


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return False
        except OSError as fault:
            raise Broken(f"the socket {quoted(str(path))} cannot be used: {fault.strerror or fault}") from None
        return True
