"""`/health` and `/metrics` by themselves, on this machine alone, where no web shows them."""

from collections.abc import Iterable

from curtainwall.serve.health import health_of
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service

SECTIONS = frozenset({"serve"})
_HERE = "127.0.0.1"


def services(serving: Serving) -> Iterable[Service]:
    """Return the pages where the configuration names a port for them."""
    port = serving.config.serve.status_port
    return [] if port is None else [StatusPages(serving, port)]


class StatusPages:
    """The service with the two pages."""

    name = "status"

    def __init__(self, serving: Serving, port: int) -> None:
        self._serving = serving
        self._port = port

    async def run(self) -> None:
        """Show the pages until cancelled."""
        # Start-up time: only who asks for the pages needs a web server.
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware

        from curtainwall.channels.status import status_routes
        from curtainwall.serve.http.server import listen, serve_pages

        guard = Middleware(TrustedHostMiddleware, allowed_hosts=[_HERE, "localhost"])
        pages = Starlette(routes=status_routes(lambda: health_of(self._serving)), middleware=[guard])
        ear = listen(_HERE, self._port, "serve.status-port")
        self._serving.book.say(f"health is at http://{_HERE}:{self._port}/health, metrics beside it", service=self.name)
        await serve_pages(pages, ear)

    def health(self) -> str:
        """Return nothing: whoever can read the answer has it from here."""
        return ""
