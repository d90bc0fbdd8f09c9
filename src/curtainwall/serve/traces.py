"""Turns, model requests and calls for OpenTelemetry, where the configuration asks for them."""

from collections.abc import Iterable

from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service

SECTIONS = frozenset({"serve"})


def services(serving: Serving) -> Iterable[Service]:
    """Return the traces, where they are wanted."""
    if not serving.config.serve.traces:
        return []
    # Start-up time: only who asks for traces needs the library.
    from curtainwall.channels.traces import Traces

    return [Traces(serving.wired.house.feed, serving.began)]
