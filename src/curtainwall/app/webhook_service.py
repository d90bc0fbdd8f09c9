"""Webhooks, as services of the house: the endpoint, and the outcomes that are sent."""

from collections.abc import Iterable

from curtainwall.app.callbacks import Callbacks
from curtainwall.app.services import Service
from curtainwall.app.serving import Serving
from curtainwall.app.webhooks import HouseDeliveries, hooks_in
from curtainwall.channels.webhook import Endpoint

SECTIONS = frozenset({"webhooks"})


_AT_ONCE = 256


class WebhookService:
    """Takes deliveries."""

    name = "webhooks"

    def __init__(self, endpoint: Endpoint, host: str, port: int) -> None:
        self._endpoint = endpoint
        self._host = host
        self._port = port
        self._is_listening = False

    async def run(self) -> None:
        """Listen until cancelled."""
        # Start-up time: a house without webhooks needs no web server.
        from curtainwall.app.http_server import listen, serve_pages

        ear = listen(self._host, self._port)
        self._is_listening = True
        try:
            await serve_pages(self._endpoint.app(), ear, at_once=_AT_ONCE)
        finally:
            self._is_listening = False

    def health(self) -> str:
        """Return what is wrong, or nothing."""
        return "" if self._is_listening else "nothing listens"


def services(serving: Serving) -> Iterable[Service]:
    """Return the services for webhooks, where the configuration has any."""
    wired = serving.wired
    if wired.setup.config.webhooks.hooks:
        deliveries = HouseDeliveries(wired, serving.work.turns.attend, serving.model)
        host, port = wired.setup.config.webhooks.address
        yield WebhookService(Endpoint(hooks_in(wired), deliveries, wired.house.clock), host, port)
        yield Callbacks(wired, deliveries)
