"""Jobs, and what the house's log tells of them: which firing became which session, which did not run and why."""

import re
from collections.abc import Iterable, Mapping
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


def seen(job: Job) -> dict[str, JsonValue]:
    """Return what is noted when a job is known for the first time, or has another schedule."""
    return {"what": "seen", "job": job.name, "schedule": job.schedule.expression, "zone": job.schedule.zone}


def passed(job: Job, due: Millis, what: Literal["skipped", "queued"], why: str) -> dict[str, JsonValue]:
    """Return what is noted of a firing that does not run, or not yet."""
    return {"what": what, "job": job.name, "due": due, "why": why}


def set_back(job: Job, rested: Millis) -> dict[str, JsonValue]:
    """Return what is noted when somebody set the clock back: the schedule goes on from here, so long after the last firing."""
    return {"what": "clock-set-back", "job": job.name, "rested": rested}


@dataclass(slots=True)
class Past:
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


class Pasts:
    """What the house's log tells of every job, read on from where it was read before."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._told: dict[str, Past] = {}
        self._cursor = 0

    def all(self) -> Mapping[str, Past]:
        """Return what became of each job until now."""
        for recorded in self._feed.read(HOUSE, self._cursor):
            tell(self._told, recorded.event)
            self._cursor = recorded.seq
        return self._told

    def of(self, job: str) -> Past:
        """Return what became of one job until now."""
        self.all()
        return self._told.setdefault(job, Past(job))


def pasts(events: Iterable[AnyEvent]) -> dict[str, Past]:
    """Return what the house's log tells of each job."""
    found: dict[str, Past] = {}
    for event in events:
        tell(found, event)
    return found


def tell(found: dict[str, Past], event: AnyEvent) -> None:
    """Take one event of the house's log in; most are about something else."""
    match event:
        case RouteSet(session=session) if session is not None and (firing := firing_of(event.route)) is not None:
            past = found.setdefault(firing.job, Past(firing.job))
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


def _note(found: dict[str, Past], data: Mapping[str, JsonValue], at: Millis) -> None:
    job, due = data.get("job"), data.get("due")
    past = found.setdefault(job, Past(job)) if isinstance(job, str) else Past()
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


def _dealt_with(past: Past, due: Millis) -> None:
    past.upto = max(past.upto, due)
    if due in past.queued:
        past.queued.remove(due)
