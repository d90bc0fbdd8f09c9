"""Webhooks, as services of the house: the endpoint, and the outcomes that are sent."""

from collections.abc import Iterable

from curtainwall.app.callbacks import Callbacks
from curtainwall.app.services import Service
from curtainwall.app.serving import Serving
from curtainwall.app.webhooks import HouseDeliveries, hooks_in
from curtainwall.channels.http import HttpServer
from curtainwall.channels.webhook import Endpoint

SECTIONS = frozenset({"webhooks"})


class WebhookService:
    """Takes deliveries."""

    name = "webhooks"

    def __init__(self, server: HttpServer) -> None:
        self.server = server

    async def run(self) -> None:
        """Listen until cancelled."""
        await self.server.run()

    def health(self) -> str:
        """Return what is wrong, or nothing."""
        return "" if self.server.is_listening.is_set() else "nothing listens"


def services(serving: Serving) -> Iterable[Service]:
    """Return the services for webhooks, where the configuration has any."""
    wired = serving.wired
    if wired.setup.config.webhooks.hooks:
        deliveries = HouseDeliveries(wired, serving.work.turns.attend, serving.model)
        host, port = wired.setup.config.webhooks.address
        app = Endpoint(hooks_in(wired), deliveries, wired.house.clock).app()
        yield WebhookService(HttpServer(app, host, port, key="webhooks.listen", at_once=256))
        yield Callbacks(wired, deliveries)
