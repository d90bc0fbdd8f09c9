"""Follows all sessions of the home, for the metrics page and for OpenTelemetry."""

from collections.abc import Iterable

from curtainwall.compose.telemetry import export_spans, sessions_of_service
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service

SECTIONS = frozenset[str]()
"""A change of the configuration must not restart it, because it would report everything again."""


def services(serving: Serving) -> Iterable[Service]:
    """Return the service that follows the sessions."""
    # Start-up time: the commands that import `serve` for its names do not need it.
    from curtainwall.channels.traces import Traces

    is_ours = sessions_of_service(serving.wired)
    return [Traces(serving.wired.registry.feed, serving.began, serving.measures, export_spans(), is_ours)]
