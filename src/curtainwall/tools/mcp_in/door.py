"""Where a session's agent comes in: a Unix socket that is there while the door is open, and nobody else's file ever."""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from curtainwall.facts import quoted
from curtainwall.model import Broken, Clock, Feed, Gate, SessionId, TryLater, session_stream
from curtainwall.tools.mcp_in.bounds import Bounds, Load
from curtainwall.tools.mcp_in.connection import Connection
from curtainwall.tools.mcp_in.greetings import Greetings, Specs
from curtainwall.tools.mcp_in.notes import Notes

_BACKLOG = 64
# `sockaddr_un.sun_path` has 108 bytes, and the last one is NUL.
_LONGEST_PATH = 107


class Door:
    """One session's tools as an MCP server."""

    def __init__(  # noqa: PLR0913 - each is one thing that `app` decides
        self, session: SessionId, gate: Gate, feed: Feed, specs: Specs, clock: Clock, bounds: Bounds | None = None, joint: str = "__"
    ) -> None:
        self.session = session
        self.gate = gate
        self.clock = clock
        self.greetings = Greetings(specs, joint)
        self.load = Load(bounds or Bounds())
        self.notes = Notes(feed, session_stream(session), slow=self.load.bounds.slow, every=self.load.bounds.note_every)
        self.tasks: set[asyncio.Task[None]] = set()
        self.connections: set[Connection] = set()

    @asynccontextmanager
    async def open(self, path: Path, *, mode: int = 0o600, owner: int | None = None) -> AsyncGenerator[None]:
        """Serve the socket at this path; raise `TryLater` where another process does, and `Broken` where none can be."""
        listener, inode = _listen(path, mode, owner)
        server = await asyncio.get_running_loop().create_unix_server(lambda: Connection(self), sock=listener, backlog=_BACKLOG)
        try:
            yield
        finally:
            server.close()
            for connection in tuple(self.connections):
                connection.cut()
            # Cutting is told to each connection in the loop's next turn, which then lets go of its calls.
            await asyncio.sleep(0)
            await asyncio.gather(*self.tasks, return_exceptions=True)
            self.notes.close()
            _remove(path, inode)


def is_served(path: Path) -> bool:
    """Tell whether some process answers at this path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return False
        except OSError as error:
            raise Broken(f"the socket {quoted(str(path))} cannot be used: {error.strerror or error}") from None
        return True


def _listen(path: Path, mode: int, owner: int | None) -> tuple[socket.socket, int]:
    """Return a listening socket and the inode of its file."""
    # The socket gets its owner and mode under a name that nobody knows, and only then the one that clients look for.
    hidden = path.with_name(f".{secrets.token_hex(2)}")
    if len(os.fsencode(path)) > _LONGEST_PATH or len(os.fsencode(hidden)) > _LONGEST_PATH:
        raise Broken(f"the path {quoted(str(path))} is too long for a socket: {_LONGEST_PATH} bytes are the most")
    if is_served(path):
        raise TryLater(f"another process serves {quoted(str(path))}; use that one or stop it")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(hidden))
        hidden.chmod(mode)
        if owner is not None:
            os.chown(hidden, owner, -1)
        listener.listen(_BACKLOG)
        inode = hidden.stat().st_ino
        hidden.rename(path)
    except OSError as error:
        listener.close()
        hidden.unlink(missing_ok=True)
        raise Broken(f"the socket {quoted(str(path))} cannot be made: {error.strerror or error}") from None
    listener.setblocking(False)
    return listener, inode


def _remove(path: Path, inode: int) -> None:
    """Take our file away, unless another process has put its own there meanwhile."""
    with contextlib.suppress(OSError):
        if path.stat().st_ino == inode:
            path.unlink()
