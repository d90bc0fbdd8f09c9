"""When a job is due, in its own time zone, across changes of the clocks."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from curtainwall.channels.cron import Schedule
from tests.support.covers import covers


def moment(text: str, zone: str = "Europe/Berlin") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def told(schedule: Schedule, after: str, count: int) -> list[str]:
    found = schedule.after(moment(after))
    return [datetime.fromtimestamp(next(found) / 1000, ZoneInfo(schedule.zone)).isoformat() for _ in range(count)]


@covers("cron.schedules-follow-the-clocks-of-their-zone")
def test_hours_are_those_of_the_zone_in_summer_and_in_winter() -> None:
    daily = Schedule.parse("0 3 * * *", "Europe/Berlin")
    assert told(daily, "2026-10-24T12:00", 2) == ["2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00"]
    assert told(daily, "2026-06-01T12:00", 1) == ["2026-06-02T03:00:00+02:00"]


@covers("cron.schedules-follow-the-clocks-of-their-zone")
def test_what_is_due_in_the_hour_that_is_left_out_runs_right_after_it_and_once() -> None:
    assert told(Schedule.parse("30 2 * * *", "Europe/Berlin"), "2026-03-28T12:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


@covers("cron.schedules-follow-the-clocks-of-their-zone")
def test_what_is_due_at_a_fixed_hour_that_comes_twice_runs_once() -> None:
    assert told(Schedule.parse("30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


@covers("cron.schedules-follow-the-clocks-of-their-zone")
def test_what_is_due_every_half_hour_goes_on_through_the_hour_that_comes_twice() -> None:
    assert told(Schedule.parse("*/30 * * * *", "Europe/Berlin"), "2026-10-25T01:45", 5) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ]


def test_of_many_that_were_due_the_last_ones_are_told() -> None:
    every = Schedule.parse("* * * * *", "UTC")
    found = every.between(0, 3_600_000, 5)
    assert found == [minute * 60_000 for minute in range(56, 61)]
    assert every.next(3_600_000) == 3_660_000


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        ("0 3 * *", "UTC", "minute, hour"),
        ("0 0 3 * * *", "UTC", "minute, hour"),
        ("61 3 * * *", "UTC", "no schedule"),
        ("0 0 31 2 *", "UTC", "no schedule"),
        ("every day", "UTC", "minute, hour"),
        ("0 3 * * *", "Berlin", "there is no time zone `Berlin`"),
        ("0 3 * * *", "../etc/passwd", "there is no time zone"),
        ("0 3 * * *", "", "there is no time zone"),
    ],
)
def test_what_is_no_schedule_is_refused_with_how_to_write_one(expression: str, zone: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Schedule.parse(expression, zone)
