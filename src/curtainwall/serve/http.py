"""A web server inside our own loop: connections within bounds, signals left alone, and an end when its task is cancelled.

Anybody on this machine can connect, whoever they are; each connection is a descriptor that the house would lack elsewhere.
"""

import asyncio
import resource
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from curtainwall.model import TryLater

MOST: Final = 400
"""How many connections one port holds, where this process may open enough files."""

_WITHIN: Final = 20.0
_SHARE: Final = 16


def most_connections() -> int:
    """Return how many connections one port may hold, so that all of them together leave most descriptors to the house."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else max(min(MOST, soft // _SHARE), 1)


class BoundedSocket(socket.socket):
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


class HttpConnection(H11Protocol):
    """One connection. A request has to be here, whole, in so many seconds; where there are too many, the longest silent one goes."""

    _patience: asyncio.TimerHandle | None = None
    since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as it is above
        """Take a place, of whoever has waited longest for nothing where all are taken."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._wait()
        # One that is let go of is there for a moment more.
        there = [it for it in cast("set[HttpConnection]", self.connections) if not it.transport.is_closing()]
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


def _waiting_since(connection: HttpConnection) -> float:
    return connection.since


_GRACE = 2
_LONGEST_HEAD = 32_768


class _Server(uvicorn.Server):
    """A server in a process that minds its own signals."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def listen(host: str, port: int, setting: str) -> socket.socket:
    """Return a socket that listens there; raise `TryLater`, with the key of the configuration that says where, if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ear = BoundedSocket(family, socket.SOCK_STREAM)
    try:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ear.bind((host, port))
        ear.listen(2048)
        ear.setblocking(False)
    except OSError as fault:
        ear.close()
        why = (fault.strerror or "it failed").lower()
        raise TryLater(f"port {port} on `{host}` cannot be used: {why}; choose another with `{setting}` in the configuration") from None
    return ear


async def serve_pages(pages: ASGIApp, ear: socket.socket, tls: tuple[str, str] | None = None, *, at_once: int | None = None) -> None:
    """Serve an application on a socket until cancelled; more requests than `at_once` are turned away.

    `tls` are the files with certificate and key.
    """
    certificate, key = tls or (None, None)
    config = uvicorn.Config(
        pages,
        http=HttpConnection,
        log_config=None,
        # What a stranger sends that is no request is nobody's news, and would fill a disk.
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=at_once,
        h11_max_incomplete_event_size=_LONGEST_HEAD,
        timeout_graceful_shutdown=_GRACE,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[ear]), name="web server")
    try:
        await asyncio.shield(task)
    finally:
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)
        ear.close()
