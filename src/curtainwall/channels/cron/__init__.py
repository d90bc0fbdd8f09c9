"""Scheduled jobs: a session for each firing, whose asks go to the people who may answer them."""

from typing import TYPE_CHECKING

from curtainwall.facts.schedules import Schedule
from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.channels.cron.jobs import (
        CHANNEL,
        LATE,
        STOPPED,
        Firing,
        FiringRow,
        Job,
        JobHistories,
        JobHistory,
        JobRow,
        Missed,
        Overlap,
        firing_of,
        firing_rows,
        job_histories,
        job_rows,
        place_of,
    )
    from curtainwall.channels.cron.scheduler import Cron, Firings
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
    "JobHistories",
    "JobHistory",
    "JobRow",
    "Missed",
    "Overlap",
    "Schedule",
    "firing_of",
    "firing_rows",
    "job_histories",
    "job_rows",
    "place_of",
]
