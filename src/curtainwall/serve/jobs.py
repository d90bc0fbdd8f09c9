"""The configured jobs, and the status of their firings."""

from curtainwall.channels.cron import STOPPED, Job, Schedule
from curtainwall.channels.cron.jobs import StatusOf
from curtainwall.config.schema import Config
from curtainwall.model import (
    SessionId,
    SessionQuery,
    TurnEnded,
    session_stream,
)
from curtainwall.operations.lookup import is_stopped
from curtainwall.runtime import Stores
from curtainwall.session import lift


def jobs_in(config: Config) -> tuple[Job, ...]:
    """Return the configured jobs."""
    return tuple(
        Job(name, Schedule.parse(section.schedule, section.zone), section.overlap, section.missed, section.policy or "", section.enabled)
        for name, section in sorted(config.cron.items())
    )


def status_in(store: Stores) -> StatusOf:
    """Return a function that gives the status of a firing's session: how its last turn ended, or that no process works on it."""

    def status_of(session: SessionId) -> str:
        rows = store.index.sessions(SessionQuery(prefix=session, limit=1))
        if not rows:
            return "deleted"
        if is_stopped(store, rows[0]):
            return STOPPED
        if rows[0].status == "closed":
            return _last_ending(store, session) or "closed"
        return rows[0].ending if rows[0].status == "ready" and rows[0].turns else rows[0].status

    return status_of


_TAIL = 32


def _last_ending(store: Stores, session: SessionId) -> str:
    """Return how the last turn of a session ended, judged by the end of its log; "" if that does not say."""
    stream = session_stream(session)
    last = store.log.read(stream, max(0, store.log.head(stream) - _TAIL))
    ended = [event.status.value for event in map(lift, last) if isinstance(event, TurnEnded)]
    return ended[-1] if ended else ""
