"""Jobs at certain times: a session for each firing, whose asks go to whoever may answer them."""

from typing import TYPE_CHECKING

from curtainwall.facts.schedules import Schedule
from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.channels.cron.cron import Cron, Firings
    from curtainwall.channels.cron.jobs import CHANNEL, LATE, Firing, Job, Missed, Overlap, Past, Pasts, firing_of, pasts, place_of
    from curtainwall.channels.cron.lines import STOPPED, FiringRow, JobRow, firing_rows, job_rows
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "CHANNEL",
    "LATE",
    "STOPPED",
    "Cron",
    "Firing",
    "FiringRow",
    "Firings",
    "Job",
    "JobRow",
    "Missed",
    "Overlap",
    "Past",
    "Pasts",
    "Schedule",
    "firing_of",
    "firing_rows",
    "job_rows",
    "pasts",
    "place_of",
]
