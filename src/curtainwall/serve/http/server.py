"""A web server inside our own loop: it leaves signals alone, says clearly where a port is taken, and stops when its task is cancelled."""

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from curtainwall.model import TryLater
from curtainwall.serve.http.connections import Connection, Ear

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
    ear = Ear(family, socket.SOCK_STREAM)
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
        http=Connection,
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
