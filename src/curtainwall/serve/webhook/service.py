"""Webhooks, as services of the house: the endpoint, and the outcomes that are sent."""

from collections.abc import Iterable

from curtainwall.channels.webhook import Endpoint
from curtainwall.serve.http.listener import Listening, Spot
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service
from curtainwall.serve.webhook.callbacks import Callbacks
from curtainwall.serve.webhook.deliveries import HouseDeliveries, hooks_in

SECTIONS = frozenset({"webhooks"})


def services(serving: Serving) -> Iterable[Service]:
    """Return the services for webhooks, where the configuration has any."""
    wired = serving.wired
    if wired.setup.config.webhooks.hooks:
        deliveries = HouseDeliveries(wired, serving.work.turns.attend, serving.model)
        endpoint = Endpoint(hooks_in(wired), deliveries, wired.house.clock, lambda words: serving.book.say(words, service="webhooks"))
        spot = Spot(wired.setup.config.webhooks.address, "/hooks/NAME", "webhooks.listen", serving.book.say)
        yield Listening("webhooks", endpoint.app, spot)
        yield Callbacks(wired, deliveries)
