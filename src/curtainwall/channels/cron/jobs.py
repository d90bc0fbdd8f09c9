"""Jobs, what the house's log says of their firings, and both as rows of a list."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from pydantic import JsonValue

from curtainwall.facts.schedules import Schedule
from curtainwall.model import HOUSE, AnyEvent, ExtensionNoted, Feed, Millis, Route, RouteSet, SessionDeleted, SessionId

CHANNEL: Final = "cron"
NOT_OVER: Final = "the one before is not over"
"""Why a firing was skipped, or waits."""

LATE: Final = 60_000
"""So late, in milliseconds, and a firing counts as missed: nobody was there to see it."""

_BY_HAND: Final = " by hand"
_TIME: Final = re.compile(r" time ([0-9]{1,6})$")
Overlap = Literal["skip", "queue", "allow"]
Missed = Literal["skip", "once", "all"]


@dataclass(frozen=True, slots=True)
class Job:
    """Something to be done at certain times."""

    name: str
    schedule: Schedule
    overlap: Overlap = "skip"
    missed: Missed = "once"
    policy: str = ""
    """The file with rules for this job alone."""


class Firing(NamedTuple):
    """One firing of a job: when it was due, or when somebody wanted it."""

    job: str
    due: Millis
    by_hand: bool = False
    time: int = 1
    """More than one where the clock was set back, and the same time of day came once more."""


def place_of(firing: Firing) -> Route:
    """Return the place that a firing is: no two firings have the same, also where one was wanted when the other was due."""
    when = datetime.fromtimestamp(firing.due / 1000, UTC).isoformat(timespec="milliseconds")
    again = f" time {firing.time}" if firing.time > 1 else ""
    return Route(channel=CHANNEL, reference=f"{firing.job}@{when}{_BY_HAND if firing.by_hand else again}")


def firing_of(place: Route) -> Firing | None:
    """Return which firing a place is, or None for a place of another kind."""
    job, found, told = place.reference.partition("@")
    if place.channel != CHANNEL or not found:
        return None
    is_by_hand, again = told.endswith(_BY_HAND), _TIME.search(told)
    when = told.removesuffix(_BY_HAND if is_by_hand else again[0] if again else "")
    try:
        return Firing(job, round(datetime.fromisoformat(when).timestamp() * 1000), is_by_hand, int(again[1]) if again else 1)
    except ValueError:
        return None


def seen_note(job: Job) -> dict[str, JsonValue]:
    """Return what is noted when a job is known for the first time, or has another schedule."""
    return {"what": "seen", "job": job.name, "schedule": job.schedule.expression, "zone": job.schedule.zone}


def passed_note(job: Job, due: Millis, what: Literal["skipped", "queued"], why: str) -> dict[str, JsonValue]:
    """Return what is noted of a firing that does not run, or not yet."""
    return {"what": what, "job": job.name, "due": due, "why": why}


def set_back_note(job: Job, rested: Millis) -> dict[str, JsonValue]:
    """Return what is noted when somebody set the clock back: the schedule goes on from here, so long after the last firing."""
    return {"what": "clock-set-back", "job": job.name, "rested": rested}


@dataclass(slots=True)
class JobHistory:
    """What became of a job so far."""

    job: str = ""
    schedule: Schedule | None = None
    upto: Millis = 0
    """Everything that was due until here has been dealt with; where the clock is set back, this goes back with it."""
    ran: Millis = 0
    """When the last firing began, by the clock as it is set now."""
    fired: dict[Firing, SessionId] = field(default_factory=dict[Firing, SessionId])
    skipped: dict[Millis, str] = field(default_factory=dict[Millis, str])
    queued: list[Millis] = field(default_factory=list[Millis])
    deleted: set[SessionId] = field(default_factory=set[SessionId])

    @property
    def last(self) -> SessionId | None:
        """The session of the last firing that ran."""
        return self.fired[self.latest] if self.fired else None

    @property
    def latest(self) -> Firing:
        """The last firing that ran; there must be one."""
        return next(reversed(self.fired))

    def is_known(self, due: Millis) -> bool:
        """Tell whether this time came before, and was dealt with."""
        return due in self.skipped or due in self.queued or Firing(self.job, due) in self.fired

    def next_firing(self, due: Millis) -> Firing:
        """Return the firing that a time is if it comes now: another one where it came before and ran."""
        firing = Firing(self.job, due)
        while firing in self.fired:
            firing = firing._replace(time=firing.time + 1)
        return firing


class JobHistories:
    """What the house's log tells of every job, read on from where it was read before."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._told: dict[str, JobHistory] = {}
        self._cursor = 0

    def all(self) -> Mapping[str, JobHistory]:
        """Return what became of each job until now."""
        for recorded in self._feed.read(HOUSE, self._cursor):
            apply_event(self._told, recorded.event)
            self._cursor = recorded.seq
        return self._told

    def of(self, job: str) -> JobHistory:
        """Return what became of one job until now."""
        self.all()
        return self._told.setdefault(job, JobHistory(job))


def job_histories(events: Iterable[AnyEvent]) -> dict[str, JobHistory]:
    """Return what the house's log tells of each job."""
    found: dict[str, JobHistory] = {}
    for event in events:
        apply_event(found, event)
    return found


def apply_event(found: dict[str, JobHistory], event: AnyEvent) -> None:
    """Take one event of the house's log in; most are about something else."""
    match event:
        case RouteSet(session=session) if session is not None and (firing := firing_of(event.route)) is not None:
            past = found.setdefault(firing.job, JobHistory(firing.job))
            past.fired[firing] = session
            if not firing.by_hand:
                past.ran = event.at
                _dealt_with(past, firing.due)
        case SessionDeleted(session=session):
            for past in found.values():
                if session in past.fired.values():
                    past.deleted.add(session)
        case ExtensionNoted(extension=extension) if extension == CHANNEL:
            _note(found, event.data, event.at)
        case _:
            pass


def _note(found: dict[str, JobHistory], data: Mapping[str, JsonValue], at: Millis) -> None:
    job, due = data.get("job"), data.get("due")
    past = found.setdefault(job, JobHistory(job)) if isinstance(job, str) else JobHistory()
    match data.get("what"):
        case "seen":
            past.schedule = Schedule(str(data.get("schedule")), str(data.get("zone")))
            past.upto = max(past.upto, at)
        case "clock-set-back" if isinstance(rested := data.get("rested"), int):
            past.upto, past.ran = at - LATE, at - rested
        case "skipped" if isinstance(due, int):
            past.skipped[due] = str(data.get("why", ""))
            _dealt_with(past, due)
        case "queued" if isinstance(due, int):
            past.upto = max(past.upto, due)
            past.queued.append(due)
        case _:
            pass


def _dealt_with(past: JobHistory, due: Millis) -> None:
    past.upto = max(past.upto, due)
    if due in past.queued:
        past.queued.remove(due)


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


def job_rows(jobs: Iterable[Job], told: Mapping[str, JobHistory], status_of: StatusOf, now: Millis) -> list[JobRow]:
    """Return a row for each job."""
    return [_row(job, told.get(job.name, JobHistory()), status_of, now) for job in jobs]


def firing_rows(told: Mapping[str, JobHistory], status_of: StatusOf, most: int, job: str | None = None) -> list[FiringRow]:
    """Return the last firings, of one job or of all, the last first."""
    found = (firing for name, past in told.items() if job in (None, name) for firing in _firings(name, past))
    newest = sorted(found, key=lambda it: (it.due, it.job), reverse=True)[:most]
    return [it if it.session is None else FiringRow(it.due, it.job, status_of(it.session), it.session, it.why) for it in newest]


def _row(job: Job, past: JobHistory, status_of: StatusOf, now: Millis) -> JobRow:
    schedule, session = job.schedule, past.last
    due = schedule.next(now)
    status, last = ("never fired", None) if session is None else (status_of(session), past.latest.due)
    return JobRow(job.name, schedule.expression, schedule.zone, due, status, last, session, job.policy)


def _firings(job: str, past: JobHistory) -> Iterator[FiringRow]:
    for firing, session in past.fired.items():
        again = "once more: the clock was set back" if firing.time > 1 else ""
        yield FiringRow(firing.due, job, "", session, "by hand" if firing.by_hand else again)
    for due, why in past.skipped.items():
        if Firing(job, due) not in past.fired:
            busy = _BUSY.fullmatch(why)
            yield FiringRow(due, job, "skipped", why=why, before=SessionId(busy[1]) if busy else None)
    for due in past.queued:
        yield FiringRow(due, job, "queued", why=NOT_OVER)
