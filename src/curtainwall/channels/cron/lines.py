"""Jobs and their firings as lists show them, wherever the list is."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from curtainwall.channels.cron.jobs import NOT_OVER, Firing, Job, Past
from curtainwall.model import Millis, SessionId

STOPPED: Final = "stopped"
"""How a firing stands on whose turn no process works."""

StatusOf = Callable[[SessionId], str]
"""Tells in a word how a firing's session stands."""

_BUSY: Final = re.compile(rf"{re.escape(NOT_OVER)}: session ([0-9A-Za-z]+)")


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job: when it is due next, and what became of its last firing."""

    job: str
    schedule: str
    zone: str
    next: Millis
    status: str
    last: Millis | None = None
    session: SessionId | None = None
    policy: str = ""


@dataclass(frozen=True, slots=True)
class FiringRow:
    """One firing: the session that it became, or why it did not run; `why` also tells where somebody wanted it."""

    due: Millis
    job: str
    status: str
    session: SessionId | None = None
    why: str = ""
    before: SessionId | None = None
    """The session that it was not run for, with which `why` ends then."""


def job_rows(jobs: Iterable[Job], told: Mapping[str, Past], status_of: StatusOf, now: Millis) -> list[JobRow]:
    """Return a row for each job."""
    return [_row(job, told.get(job.name, Past()), status_of, now) for job in jobs]


def firing_rows(told: Mapping[str, Past], status_of: StatusOf, most: int, job: str | None = None) -> list[FiringRow]:
    """Return the last firings, of one job or of all, the last first."""
    found = (firing for name, past in told.items() if job in (None, name) for firing in _firings(name, past))
    newest = sorted(found, key=lambda it: (it.due, it.job), reverse=True)[:most]
    return [it if it.session is None else FiringRow(it.due, it.job, status_of(it.session), it.session, it.why) for it in newest]


def _row(job: Job, past: Past, status_of: StatusOf, now: Millis) -> JobRow:
    schedule, session = job.schedule, past.last
    due = schedule.next(now)
    status, last = ("never fired", None) if session is None else (status_of(session), past.latest.due)
    return JobRow(job.name, schedule.expression, schedule.zone, due, status, last, session, job.policy)


def _firings(job: str, past: Past) -> Iterator[FiringRow]:
    for firing, session in past.fired.items():
        again = "once more: the clock was set back" if firing.time > 1 else ""
        yield FiringRow(firing.due, job, "", session, "by hand" if firing.by_hand else again)
    for due, why in past.skipped.items():
        if Firing(job, due) not in past.fired:
            busy = _BUSY.fullmatch(why)
            yield FiringRow(due, job, "skipped", why=why, before=SessionId(busy[1]) if busy else None)
    for due in past.queued:
        yield FiringRow(due, job, "queued", why=NOT_OVER)
