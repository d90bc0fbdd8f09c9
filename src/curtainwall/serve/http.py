"""A web server in our own event loop: limits connections, leaves signals alone, and ends when its task is cancelled.

Anyone on this machine can connect, and each connection takes a file descriptor that other parts may need.
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
"""How many connections one port holds, if this process may open enough files."""

_WITHIN: Final = 20.0
_SHARE: Final = 16


def most_connections() -> int:
    """Return how many connections one port may hold, so that all ports together leave most descriptors to other parts."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else max(min(MOST, soft // _SHARE), 1)


class BoundedSocket(socket.socket):
    """A listening socket that refuses connections beyond a limit, counting those that have not sent anything yet."""

    _held: tuple[socket.socket, ...] = ()

    def accept(self) -> tuple[socket.socket, object]:
        """Return the next connection; close one beyond the limit."""
        connection, address = super().accept()
        self._held = tuple(held for held in self._held if held.fileno() != -1)
        # Places are freed where connections are tracked, so a few more than the limit are let in.
        if len(self._held) >= 2 * most_connections():
            connection.close()
            raise ConnectionAbortedError("as many are connected as may be")
        self._held = (*self._held, connection)
        return connection, address


class HttpConnection(H11Protocol):
    """One connection. A whole request must arrive within a time limit; if there are too many connections, the longest silent one goes."""

    _timer: asyncio.TimerHandle | None = None
    since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as it is above
        """Take a place, replacing the longest silent connection if all are taken."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._start_timer()
        # A connection being closed is listed for a moment longer.
        active = [other for other in cast("set[HttpConnection]", self.connections) if not other.transport.is_closing()]
        if len(active) > most_connections():
            silent = (other for other in active if other.is_silent and other is not self)
            min(silent, key=_waiting_since, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Receive data, and enforce the time limit for a request."""
        super().data_received(data)
        if self.is_silent:
            self._start_timer()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def is_silent(self) -> bool:
        """Tell whether no complete request is being answered."""
        return not self.cycle or self.cycle.response_complete or self.cycle.more_body

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(_WITHIN, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _waiting_since(connection: HttpConnection) -> float:
    return connection.since


_GRACE = 2
_LONGEST_HEAD = 32_768


class _Server(uvicorn.Server):
    """A server in a process that handles signals elsewhere."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def listen(host: str, port: int, setting: str) -> socket.socket:
    """Return a listening socket; raise `TryLater`, naming the configuration key, if that is impossible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server_socket = BoundedSocket(family, socket.SOCK_STREAM)
    try:
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server_socket.bind((host, port))
        server_socket.listen(2048)
        server_socket.setblocking(False)
    except OSError as error:
        server_socket.close()
        reason = (error.strerror or "it failed").lower()
        raise TryLater(f"port {port} on `{host}` cannot be used: {reason}; choose another with `{setting}` in the configuration") from None
    return server_socket


async def serve_pages(
    pages: ASGIApp, server_socket: socket.socket, tls: tuple[str, str] | None = None, *, at_once: int | None = None
) -> None:
    """Serve an application on a socket until cancelled; refuse more than `at_once` concurrent requests.

    `tls` holds the certificate and key files.
    """
    certificate, key = tls or (None, None)
    config = uvicorn.Config(
        pages,
        http=HttpConnection,
        log_config=None,
        # Malformed requests of strangers are not worth logging, and would fill a disk.
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
    task = asyncio.create_task(server.serve(sockets=[server_socket]), name="web server")
    try:
        await asyncio.shield(task)
    finally:
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)
        server_socket.close()
