"""Scheduled jobs: a session for each firing, whose asks go to the people who may answer them."""

from typing import TYPE_CHECKING

from curtainwall.facts.schedules import Schedule as Schedule
from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.channels.cron.jobs import CHANNEL as CHANNEL
    from curtainwall.channels.cron.jobs import LATE as LATE
    from curtainwall.channels.cron.jobs import STOPPED as STOPPED
    from curtainwall.channels.cron.jobs import Firing as Firing
    from curtainwall.channels.cron.jobs import FiringRow as FiringRow
    from curtainwall.channels.cron.jobs import Job as Job
    from curtainwall.channels.cron.jobs import JobHistories as JobHistories
    from curtainwall.channels.cron.jobs import JobHistory as JobHistory
    from curtainwall.channels.cron.jobs import JobRow as JobRow
    from curtainwall.channels.cron.jobs import Missed as Missed
    from curtainwall.channels.cron.jobs import Overlap as Overlap
    from curtainwall.channels.cron.jobs import firing_of as firing_of
    from curtainwall.channels.cron.jobs import firing_rows as firing_rows
    from curtainwall.channels.cron.jobs import job_histories as job_histories
    from curtainwall.channels.cron.jobs import job_rows as job_rows
    from curtainwall.channels.cron.jobs import place_of as place_of
    from curtainwall.channels.cron.scheduler import Cron as Cron
    from curtainwall.channels.cron.scheduler import Firings as Firings
else:
    __getattr__ = lazy_names(__name__)
