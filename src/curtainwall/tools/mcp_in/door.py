"""Where a session's agent comes in: a Unix socket that is there while the door is open."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from curtainwall.host import BACKLOG, SocketFile
from curtainwall.model import Clock, Feed, Gate, SessionId, TurnId, session_stream
from curtainwall.tools.mcp_in.bounds import Bounds, Load
from curtainwall.tools.mcp_in.connection import Connection
from curtainwall.tools.mcp_in.greetings import Greetings, Specs
from curtainwall.tools.mcp_in.notes import Notes


class Door:
    """One session's tools as an MCP server."""

    def __init__(  # noqa: PLR0913 - each is one thing that `app` decides
        self,
        session: SessionId,
        gate: Gate,
        feed: Feed,
        specs: Specs,
        clock: Clock,
        bounds: Bounds | None = None,
        turn: TurnId | None = None,
        joint: str = "__",
    ) -> None:
        self.session = session
        self.turn = turn
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
        file = SocketFile.open(path, mode, owner)
        server = await asyncio.get_running_loop().create_unix_server(lambda: Connection(self), sock=file.listener, backlog=BACKLOG)
        try:
            yield
        finally:
            server.close()
            await self.close()
            file.remove()

    async def enter(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the far end of a new connection, for a peer in this process."""
        near, far = socket.socketpair()
        await asyncio.get_running_loop().create_unix_connection(lambda: Connection(self), sock=near)
        return await asyncio.open_unix_connection(sock=far)

    async def close(self) -> None:
        """Cut every connection, and see its calls to their end."""
        for connection in tuple(self.connections):
            connection.cut()
        # Cutting is told to each connection in the loop's next turn, which then lets go of its calls.
        await asyncio.sleep(0)
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.notes.close()
