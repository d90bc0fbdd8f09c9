"""Connections to a port of ours: so many and no more, and whoever says nothing in time, or too much too slowly, is let go.

Anybody on this machine can connect, whoever they are; each connection is a descriptor that the house would lack elsewhere.
"""

import asyncio
import resource
import socket
from typing import Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST: Final = 400
"""How many connections one port holds, where this process may open enough files."""

_WITHIN: Final = 20.0
_SHARE: Final = 16


def most_connections() -> int:
    """Return how many connections one port may hold, so that all of them together leave most descriptors to the house."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else max(min(MOST, soft // _SHARE), 1)


class Ear(socket.socket):
    """A socket that listens, and lets nobody in while it holds as many as it may, also those that have not greeted yet."""

    _held: tuple[socket.socket, ...] = ()

    def accept(self) -> tuple[socket.socket, object]:
        """Return the next connection; one too many is hung up on."""
        come, address = super().accept()
        self._held = tuple(it for it in self._held if it.fileno() != -1)
        # Room for a new one is made where connections are known, so a few more than those are let in.
        if len(self._held) >= 2 * most_connections():
            come.close()
            raise ConnectionAbortedError("as many are connected as may be")
        self._held = (*self._held, come)
        return come, address


class Connection(H11Protocol):
    """One connection. A request has to be here, whole, in so many seconds; where there are too many, the longest silent one goes."""

    _patience: asyncio.TimerHandle | None = None
    since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as it is above
        """Take a place, of whoever has waited longest for nothing where all are taken."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._wait()
        # One that is let go of is there for a moment more.
        there = [it for it in cast("set[Connection]", self.connections) if not it.transport.is_closing()]
        if len(there) > most_connections():
            silent = (it for it in there if it.is_silent and it is not self)
            min(silent, key=_waiting_since, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take in what comes, and mind how long a request takes to come."""
        super().data_received(data)
        if self.is_silent:
            self._wait()
        else:
            self._wait_no_longer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        self._wait_no_longer()
        super().connection_lost(exc)

    @property
    def is_silent(self) -> bool:
        """Tell whether no whole request is here that is not answered yet."""
        return not self.cycle or self.cycle.response_complete or self.cycle.more_body

    def _wait(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(_WITHIN, self.transport.abort)

    def _wait_no_longer(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _waiting_since(connection: Connection) -> float:
    return connection.since
