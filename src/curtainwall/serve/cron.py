"""The configured jobs, as a service."""

from collections.abc import Iterable

from curtainwall.channels.cron import Cron
from curtainwall.serve.firings import JobFirings
from curtainwall.serve.jobs import jobs_in
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service

SECTIONS = frozenset({"cron"})


def services(serving: Serving) -> Iterable[Service]:
    """Return the service that fires jobs, if any are configured."""
    jobs, wired = jobs_in(serving.config), serving.wired
    if jobs:
        yield Cron(jobs, JobFirings(wired, serving.work.turns.attend, serving.model), wired.registry.feed, wired.registry.clock)
