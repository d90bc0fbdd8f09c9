"""The jobs of the configuration, as a service of the house."""

from collections.abc import Iterable

from curtainwall.channels.cron import Cron
from curtainwall.serve.firings import JobFirings
from curtainwall.serve.jobs import jobs_in
from curtainwall.serve.service import Serving
from curtainwall.serve.supervisor import Service

SECTIONS = frozenset({"cron"})


def services(serving: Serving) -> Iterable[Service]:
    """Return the service that lets jobs fire, where the configuration has any."""
    jobs, wired = jobs_in(serving.config), serving.wired
    if jobs:
        yield Cron(jobs, JobFirings(wired, serving.work.turns.attend, serving.model), wired.house.feed, wired.house.clock)
