"""The web itself: routes behind the door, and a server on one socket of its own."""

import asyncio
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from curtainwall.channels.web.acting import Acting
from curtainwall.channels.web.auditing import Auditing
from curtainwall.channels.web.entering import Entering, Tokens, Tries
from curtainwall.channels.web.guard import Doors, Guard
from curtainwall.channels.web.house import House
from curtainwall.channels.web.hubs import Hubs
from curtainwall.channels.web.looking import Looking
from curtainwall.channels.web.measuring import Measuring
from curtainwall.channels.web.ruling import Ruling
from curtainwall.channels.web.sign_ins import SignIns
from curtainwall.channels.web.site import Site
from curtainwall.channels.web.streaming import Streaming
from curtainwall.model import Broken, CommandRefused, NotFound

_STATIC = Path(__file__).with_name("static")
_BACKLOG = 1_024
_GOODBYE_SECONDS = 3
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Bind:
    """Where the server listens, and with which certificate."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None


def web_app(house: House, hubs: Hubs, doors: Doors, sign_ins: SignIns, tokens: Tokens) -> ASGIApp:
    """Return the whole web behind its door."""
    site = Site(house, hubs, doors, sign_ins)
    routes: list[BaseRoute] = [Mount("/static", StaticFiles(directory=_STATIC)), *pages(site, tokens)]

    async def elsewhere(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = "there is no such page" if error.status_code == _NOT_FOUND else f"this cannot be done here ({error.status_code})"
        answer = site.refused(request, NotFound(words) if error.status_code == _NOT_FOUND else CommandRefused(words))
        answer.status_code = error.status_code
        answer.headers.update(error.headers or {})
        return answer

    return Guard(Starlette(routes=routes, exception_handlers={HTTPException: elsewhere}), doors, sign_ins)


def pages(site: Site, tokens: Tokens) -> list[Route]:
    """Return every page and every form."""
    entering, acting, looking = Entering(site, tokens, Tries()), Acting(site), Looking(site)
    parts = (entering, acting, looking, Auditing(site), Ruling(site), Measuring(site), Streaming(site))
    return [route for part in parts for route in part.routes()]


class WebServer:
    """Serves until cancelled; then every stream is ended, and requests that run have a moment to finish."""

    def __init__(self, app: ASGIApp, hubs: Hubs, bind: Bind) -> None:
        self._app = app
        self._hubs = hubs
        self._bind = bind
        self.is_listening = asyncio.Event()
        self.port = bind.port

    async def run(self) -> None:
        """Listen and serve."""
        listener = self._listener()
        self.port = listener.getsockname()[1]
        server = _Server(self._config())
        self._hubs.start()
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="web: server")
        self.is_listening.set()
        try:
            await asyncio.shield(serving)
        finally:
            self.is_listening.clear()
            server.should_exit = True
            await self._hubs.stop()
            with suppress(Exception):
                await asyncio.wait_for(serving, 2 * _GOODBYE_SECONDS)
            listener.close()

    def _listener(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._bind.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._bind.host, self._bind.port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise Broken(
                f"the web cannot listen at {self._bind.host}:{self._bind.port}: {error.strerror}; choose another `web.port`"
            ) from None
        return listener

    def _config(self) -> uvicorn.Config:
        config = uvicorn.Config(
            self._app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=_GOODBYE_SECONDS,
            ssl_certfile=self._bind.certificate,
            ssl_keyfile=self._bind.key,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise Broken(f"the certificate of the web cannot be used: {error}") from None
        return config


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Catch nothing."""
        yield
