"""An HTTP server of ours: one socket, one application, bounded, gone when it is cancelled, and no hand on the process's signals."""

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress

import uvicorn
from starlette.types import ASGIApp

from curtainwall.model import Broken

_BACKLOG = 1_024
_GOODBYE_SECONDS = 3
_LONGEST_HEAD = 32_768


class HttpServer:
    """Serves an application until cancelled; requests that run then have a moment to finish."""

    def __init__(self, app: ASGIApp, host: str, port: int, *, key: str, at_once: int | None = None) -> None:
        self._app = app
        self._host = host
        self._key = key
        self._at_once = at_once
        self.port = port
        self.is_listening = asyncio.Event()

    async def run(self) -> None:
        """Listen and serve; raise `Broken` that names the key of the configuration where that cannot be."""
        listener = self._listener()
        self.port = listener.getsockname()[1]
        server = _Server(
            uvicorn.Config(
                self._app,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                limit_concurrency=self._at_once,
                h11_max_incomplete_event_size=_LONGEST_HEAD,
                timeout_graceful_shutdown=_GOODBYE_SECONDS,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]), name=f"http on port {self.port}")
        self.is_listening.set()
        try:
            await asyncio.shield(serving)
        finally:
            self.is_listening.clear()
            server.should_exit = True
            with suppress(Exception):
                await asyncio.wait_for(serving, 2 * _GOODBYE_SECONDS)
            listener.close()

    def _listener(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self.port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise Broken(f"nothing can listen at {self._host}:{self.port}: {error.strerror}; choose another `{self._key}`") from None
        return listener


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Catch nothing."""
        yield
