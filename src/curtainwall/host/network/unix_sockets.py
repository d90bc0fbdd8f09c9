"""A listening Unix socket that gets its mode and owner before its name, and that we remove only if it is still ours."""

import contextlib
import os
import secrets
import socket
from pathlib import Path
from typing import Final, Self

from curtainwall.model import Broken, TryLater

BACKLOG: Final = 64
"""How many clients may wait to be accepted."""

# `sockaddr_un.sun_path` has 108 bytes, and the last one is NUL.
_LONGEST_PATH: Final = 107


class SocketFile:
    """A socket that listens at a path. The caller serves `listener`, which closes it, and then removes the file."""

    def __init__(self, path: Path, listener: socket.socket, inode: int) -> None:
        self._path = path
        self._inode = inode
        self.listener = listener

    @classmethod
    def open(cls, path: Path, mode: int, owner: int | None, *, replaces: bool = False) -> Self:
        """Listen at this path; raise `TryLater` if another process does and is not to be replaced, `Broken` if we cannot."""
        # The socket gets its owner and mode under a secret name, and only then the name that clients look for.
        hidden = path.with_name(f".{secrets.token_hex(2)}")
        if max(len(os.fsencode(path)), len(os.fsencode(hidden))) > _LONGEST_PATH:
            raise Broken(f"the path `{path}` is too long for a socket: {_LONGEST_PATH} bytes are the most")
        if not replaces and is_served(path):
            raise TryLater(f"another process serves `{path}`; use that one or stop it")
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
            raise Broken(f"the socket `{path}` cannot be made: {fault.strerror or fault}") from None
        listener.setblocking(False)
        return cls(path, listener, inode)

    def remove(self) -> None:
        """Remove our file, unless another process has replaced it."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


def is_served(path: Path) -> bool:
    """Tell whether a process listens at this path; raise `Broken` if we cannot tell."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return False
        except OSError as fault:
            raise Broken(f"the socket `{path}` cannot be used: {fault.strerror or fault}") from None
        return True
