"""Webhooks, as services of the house: the endpoint, and the outcomes that are sent."""

import asyncio
from collections.abc import Iterable

from curtainwall.app.callbacks import Callbacks
from curtainwall.app.services import Service
from curtainwall.app.serving import Serving
from curtainwall.app.webhooks import HouseDeliveries, hooks_in
from curtainwall.channels.webhook import Endpoint
from curtainwall.model import Broken

SECTIONS = frozenset({"webhooks"})


class WebhookServer:
    """The listener; the endpoint answers."""

    name = "webhooks"

    def __init__(self, endpoint: Endpoint, host: str, port: int) -> None:
        self._endpoint = endpoint
        self._host = host
        self._port = port
        self._fault = ""

    def health(self) -> str:
        """Return why nothing can be delivered, if so."""
        return self._fault

    async def run(self) -> None:
        """Listen until cancelled."""
        # Start-up time: a house without webhooks needs no web server.
        import uvicorn

        settings = uvicorn.Config(
            self._endpoint.app(),
            host=self._host,
            port=self._port,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            h11_max_incomplete_event_size=32_768,
            limit_concurrency=256,
            timeout_keep_alive=10,
        )
        server = uvicorn.Server(settings)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined] - older versions have it; signals are the program's
        try:
            await server.serve()
        except SystemExit:
            self._fault = f"port {self._port} cannot be listened on; choose another in `webhooks.listen`"
            raise Broken(self._fault) from None
        except asyncio.CancelledError:
            server.should_exit = True
            await server.shutdown()
            raise


def services(serving: Serving) -> Iterable[Service]:
    """Return the services for webhooks, where the configuration has any."""
    wired = serving.wired
    if wired.setup.config.webhooks.hooks:
        deliveries = HouseDeliveries(wired, serving.work.turns.attend, serving.model)
        host, port = wired.setup.config.webhooks.address
        yield WebhookServer(Endpoint(hooks_in(wired), deliveries, wired.house.clock), host, port)
        yield Callbacks(wired, deliveries)
