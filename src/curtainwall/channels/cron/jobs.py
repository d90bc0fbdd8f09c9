"""Jobs, what the house log says about their firings, and both as rows of a list."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, assert_never

from pydantic import JsonValue

from curtainwall.facts.schedules import Schedule
from curtainwall.model import HOUSE, AnyEvent, ExtensionNoted, Feed, HouseEvent, Millis, Route, RouteSet, SessionDeleted, SessionId, record

CHANNEL: Final = "cron"
NOT_OVER: Final = "the one before is not over"
"""Why a firing was skipped or is waiting."""

LATE: Final = 60_000
"""A firing that is this late, in milliseconds, counts as missed."""

_BY_HAND: Final = " by hand"
_TIME: Final = re.compile(r" time ([0-9]{1,6})$")
Overlap = Literal["skip", "queue", "allow"]
Missed = Literal["skip", "once", "all"]


@record
class Job:
    """Something to do at certain times."""

    name: str
    schedule: Schedule
    overlap: Overlap = "skip"
    missed: Missed = "once"
    policy: str = ""
    """A file with extra rules for this job."""
    enabled: bool = True


class Firing(NamedTuple):
    """One firing of a job: when it was due, or when a person started it."""

    job: str
    due: Millis
    by_hand: bool = False
    time: int = 1
    """More than 1 if the clock was set back and the same time of day came again."""


def place_of(firing: Firing) -> Route:
    """Return the place of a firing. It is unique, even if a firing was started by hand at the moment another was due."""
    when = datetime.fromtimestamp(firing.due / 1000, UTC).isoformat(timespec="milliseconds")
    again = f" time {firing.time}" if firing.time > 1 else ""
    return Route(channel=CHANNEL, reference=f"{firing.job}@{when}{_BY_HAND if firing.by_hand else again}")


def firing_of(place: Route) -> Firing | None:
    """Return the firing that a place denotes, or None for another kind of place."""
    job, separator, suffix = place.reference.partition("@")
    if place.channel != CHANNEL or not separator:
        return None
    is_by_hand, again = suffix.endswith(_BY_HAND), _TIME.search(suffix)
    when = suffix.removesuffix(_BY_HAND if is_by_hand else again[0] if again else "")
    try:
        return Firing(job, round(datetime.fromisoformat(when).timestamp() * 1000), is_by_hand, int(again[1]) if again else 1)
    except ValueError:
        return None


def seen_note(job: Job) -> dict[str, JsonValue]:
    """Return the note for a job that is new or has a new schedule."""
    return {"what": "seen", "job": job.name, "schedule": job.schedule.expression, "zone": job.schedule.zone}


def off_note(job: Job) -> dict[str, JsonValue]:
    """Return the note for a job that was disabled: once it is enabled again, it counts as new."""
    return {"what": "seen", "job": job.name, "schedule": "", "zone": job.schedule.zone}


def passed_note(job: Job, due: Millis, what: Literal["skipped", "queued"], why: str) -> dict[str, JsonValue]:
    """Return the note for a firing that does not run, or not yet."""
    return {"what": what, "job": job.name, "due": due, "why": why}


def set_back_note(job: Job, rested: Millis) -> dict[str, JsonValue]:
    """Return the note for a clock that was set back: the schedule continues from now, `rested` milliseconds after the last firing."""
    return {"what": "clock-set-back", "job": job.name, "rested": rested}


@dataclass(slots=True)
class JobHistory:
    """The history of a job."""

    job: str = ""
    schedule: Schedule | None = None
    upto: Millis = 0
    """Everything due until then has been handled; if the clock is set back, this goes back with it."""
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
        """Tell whether this time came before and was handled."""
        return due in self.skipped or due in self.queued or Firing(self.job, due) in self.fired

    def next_firing(self, due: Millis) -> Firing:
        """Return the firing for a time that comes now: a repetition if that time has already run."""
        firing = Firing(self.job, due)
        while firing in self.fired:
            firing = firing._replace(time=firing.time + 1)
        return firing


class JobHistories:
    """The history of every job in the house log, read incrementally."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._histories: dict[str, JobHistory] = {}
        self._cursor = 0

    def all(self) -> Mapping[str, JobHistory]:
        """Return the history of each job until now."""
        for recorded in self._feed.read(HOUSE, self._cursor):
            apply_event(self._histories, recorded.event)
            self._cursor = recorded.seq
        return self._histories

    def of(self, job: str) -> JobHistory:
        """Return the history of one job until now."""
        self.all()
        return self._histories.setdefault(job, JobHistory(job))


def job_histories(events: Iterable[AnyEvent]) -> dict[str, JobHistory]:
    """Return the history of each job from the events of the house log."""
    histories: dict[str, JobHistory] = {}
    for event in events:
        apply_event(histories, event)
    return histories


def apply_event(histories: dict[str, JobHistory], event: AnyEvent) -> None:
    """Apply one event of the house log; most are about something else."""
    if isinstance(event, ExtensionNoted):
        if event.extension == CHANNEL:
            _note(histories, event.data, event.at)
        return
    if not isinstance(event, HouseEvent):
        return
    match event:
        case RouteSet(session=session):
            if session is None or (firing := firing_of(event.route)) is None:
                return
            history = histories.setdefault(firing.job, JobHistory(firing.job))
            history.fired[firing] = session
            if not firing.by_hand:
                history.ran = event.at
                _mark_handled(history, firing.due)
        case SessionDeleted(session=session):
            for history in histories.values():
                if session in history.fired.values():
                    history.deleted.add(session)
        case _:
            assert_never(event)


def _note(histories: dict[str, JobHistory], data: Mapping[str, JsonValue], at: Millis) -> None:
    job, due = data.get("job"), data.get("due")
    history = histories.setdefault(job, JobHistory(job)) if isinstance(job, str) else JobHistory()
    match data.get("what"):
        case "seen":
            history.schedule = Schedule(str(data.get("schedule")), str(data.get("zone")))
            history.upto = max(history.upto, at)
        case "clock-set-back" if isinstance(rested := data.get("rested"), int):
            history.upto, history.ran = at - LATE, at - rested
        case "skipped" if isinstance(due, int):
            history.skipped[due] = str(data.get("why", ""))
            _mark_handled(history, due)
        case "queued" if isinstance(due, int):
            history.upto = max(history.upto, due)
            history.queued.append(due)
        case _:
            pass


def _mark_handled(history: JobHistory, due: Millis) -> None:
    history.upto = max(history.upto, due)
    if due in history.queued:
        history.queued.remove(due)


STOPPED: Final = "stopped"
"""The status of a firing whose turn no process is working on."""

StatusOf = Callable[[SessionId], str]
"""Returns the status of a firing's session, in a word."""

_BUSY: Final = re.compile(rf"{re.escape(NOT_OVER)}: session ([0-9A-Za-z]+)")


@record
class JobRow:
    """One job: when it is due next, and what happened to its last firing."""

    job: str
    schedule: str
    zone: str
    next: Millis
    status: str
    last: Millis | None = None
    session: SessionId | None = None
    policy: str = ""
    enabled: bool = True


@record
class FiringRow:
    """One firing: its session, or why it did not run; `why` also says if it was started by hand."""

    due: Millis
    job: str
    status: str
    session: SessionId | None = None
    why: str = ""
    before: SessionId | None = None
    """The session that kept it from running; `why` then ends with it."""


def job_rows(jobs: Iterable[Job], histories: Mapping[str, JobHistory], status_of: StatusOf, now: Millis) -> list[JobRow]:
    """Return a row for each job."""
    return [_row(job, histories.get(job.name, JobHistory()), status_of, now) for job in jobs]


def firing_rows(histories: Mapping[str, JobHistory], status_of: StatusOf, most: int, job: str | None = None) -> list[FiringRow]:
    """Return the latest firings of one job or of all, newest first."""
    firings = (firing for name, history in histories.items() if job in (None, name) for firing in _firings(name, history))
    newest = sorted(firings, key=lambda row: (row.due, row.job), reverse=True)[:most]
    return [row if row.session is None else FiringRow(row.due, row.job, status_of(row.session), row.session, row.why) for row in newest]


def _row(job: Job, history: JobHistory, status_of: StatusOf, now: Millis) -> JobRow:
    schedule, session = job.schedule, history.last
    due = schedule.next(now)
    status, last = ("never fired", None) if session is None else (status_of(session), history.latest.due)
    return JobRow(job.name, schedule.expression, schedule.zone, due, status, last, session, job.policy, job.enabled)


def _firings(job: str, history: JobHistory) -> Iterator[FiringRow]:
    for firing, session in history.fired.items():
        again = "once more: the clock was set back" if firing.time > 1 else ""
        yield FiringRow(firing.due, job, "", session, "by hand" if firing.by_hand else again)
    for due, why in history.skipped.items():
        if Firing(job, due) not in history.fired:
            busy = _BUSY.fullmatch(why)
            yield FiringRow(due, job, "skipped", why=why, before=SessionId(busy[1]) if busy else None)
    for due in history.queued:
        yield FiringRow(due, job, "queued", why=NOT_OVER)
