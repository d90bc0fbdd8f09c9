"""Jobs at certain times: a session for each firing, whose asks go to whoever may answer them."""

from curtainwall.channels.cron.cron import LATE, Cron, Firings
from curtainwall.channels.cron.jobs import CHANNEL, Firing, Job, Missed, Overlap, Past, Pasts, firing_of, pasts, place_of
from curtainwall.channels.cron.schedules import Schedule
from curtainwall.channels.cron.showing import STOPPED, FiringRow, JobRow, firing_rows, job_rows

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
