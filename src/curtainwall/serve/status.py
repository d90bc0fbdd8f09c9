"""The state of the served home; and a loopback server for `/health` and `/metrics`, used if the web pages are not served."""

import os
import resource
from collections.abc import Iterable
from pathlib import Path

from curtainwall import __version__
from curtainwall.channels.status import Health
from curtainwall.model import CurtainwallError, Tally
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service

_PAGE = os.sysconf("SC_PAGE_SIZE")


def health_of(serving: Serving) -> Health:
    """Return how everything is."""
    clock, tally, fault = serving.wired.registry.clock, Tally({}, {}, None), ""
    try:
        tally = serving.wired.store.tallies.tally()
    except CurtainwallError as error:
        fault = str(error)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Health(
        version=__version__,
        pid=os.getpid(),
        began=serving.began,
        now=clock.now(),
        policy=serving.wired.setup.policy.version,
        fault_in_files=serving.reload.fault,
        wait_for_restart=tuple(sorted(serving.reload.waiting)),
        services=serving.supervisor.health(),
        restarts=serving.supervisor.restarts(),
        sessions={status: tally.sessions.get(status, 0) for status in ("opening", "ready", "working", "waiting", "closed")},
        asks={how: tally.asks.get(how, 0) for how in ("open", "granted", "denied", "expired", "withdrawn")},
        oldest_ask=tally.oldest_ask,
        attended=len(serving.work.turns.attended),
        memory=_resident(),
        cpu_seconds=used.ru_utime + used.ru_stime,
        store_fault=fault,
    )


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


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
        from curtainwall.serve.http import listen, serve_pages

        guard = Middleware(TrustedHostMiddleware, allowed_hosts=[_HERE, "localhost"])
        pages = Starlette(routes=status_routes(lambda: health_of(self._serving), self._serving.measures), middleware=[guard])
        listener = listen(_HERE, self._port, "serve.status-port")
        self._serving.book.say(f"health is at http://{_HERE}:{self._port}/health, metrics beside it", service=self.name)
        await serve_pages(pages, listener)

    def health(self) -> str:
        """Return nothing, because the report itself is the answer."""
        return ""
