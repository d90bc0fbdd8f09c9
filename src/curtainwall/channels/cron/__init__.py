"""Jobs at certain times: a session for each firing, whose asks go to whoever may answer them."""

from curtainwall.channels.cron.cron import LATE, Cron, Firings
from curtainwall.channels.cron.jobs import CHANNEL, Job, Missed, Overlap, Past, due_of, pasts, place_of
from curtainwall.channels.cron.schedules import Schedule

__all__ = ["CHANNEL", "LATE", "Cron", "Firings", "Job", "Missed", "Overlap", "Past", "Schedule", "due_of", "pasts", "place_of"]
