"""The jobs of the configuration, and how their firings stand."""

from curtainwall.channels.cron import STOPPED, Job, Schedule
from curtainwall.channels.cron.jobs import StatusOf
from curtainwall.config.schema import Config
from curtainwall.model import (
    SessionId,
    SessionQuery,
)
from curtainwall.operations.lookup import is_stopped
from curtainwall.runtime import Stores


def jobs_in(config: Config) -> tuple[Job, ...]:
    """Return the jobs of a configuration."""
    return tuple(
        Job(name, Schedule.parse(told.schedule, told.zone), told.overlap, told.missed, told.policy or "")
        for name, told in sorted(config.cron.items())
    )


def status_in(store: Stores) -> StatusOf:
    """Return what tells in a word how a firing's session stands, how its last turn ended, or that no process works on it any more."""

    def status_of(session: SessionId) -> str:
        rows = store.index.sessions(SessionQuery(prefix=session, limit=1))
        if not rows:
            return "deleted"
        if is_stopped(store, rows[0]):
            return STOPPED
        return rows[0].ending if rows[0].status == "ready" and rows[0].turns else rows[0].status

    return status_of
