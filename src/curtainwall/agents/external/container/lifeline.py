"""A socket that a container holds on to: when the process that serves it is gone, however it went, the container ends by itself."""

import asyncio
from pathlib import Path
from typing import Self

from curtainwall.host import BACKLOG, SocketFile

_MODE = 0o600


class Lifeline:
    """One container's socket; it is there before the container, and goes after it."""

    def __init__(self, file: SocketFile) -> None:
        self._file = file
        self._server: asyncio.Server | None = None
        self._holder: asyncio.StreamWriter | None = None

    @classmethod
    async def open(cls, path: Path, owner: int) -> Self:
        """Listen at a path, for one user.

        Another process may still listen there for the session's container before this one, which is gone by now.
        """
        line = cls(SocketFile.open(path, _MODE, owner, replaces=True))
        line._server = await asyncio.start_unix_server(line._take, sock=line._file.listener, backlog=BACKLOG)
        return line

    def close(self) -> None:
        """Let go of whoever holds it; calling it twice is harmless."""
        if self._server is not None:
            self._server.close()
        if self._holder is not None:
            self._holder.close()
        self._server = self._holder = None
        self._file.remove()

    async def _take(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # One is enough. An agent that opens more must not use up our descriptors, and what it writes is never read.
        if self._holder is None and self._server is not None:
            self._holder = writer
        else:
            writer.close()
