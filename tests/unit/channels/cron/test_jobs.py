"""What the house's log tells of jobs."""

from curtainwall.channels.cron import Firing, Job, Schedule, firing_of, job_histories, place_of
from curtainwall.channels.cron.jobs import passed_note, seen_note
from curtainwall.model import ExtensionNoted, Route, RouteSet, SessionId, Who

NIGHTLY = Job("nightly", Schedule("0 3 * * *", "Europe/Berlin"))
BY = Who(name="nightly", channel="cron")


def noted(data: object, at: int = 5) -> ExtensionNoted:
    return ExtensionNoted.model_validate({"at": at, "extension": "cron", "data": data})


def fired(due: int, session: str | None) -> RouteSet:
    return RouteSet(at=9, route=place_of(Firing("nightly", due)), session=None if session is None else SessionId(session), by=BY)


def test_a_firing_has_one_place_and_a_place_names_its_firing() -> None:
    place = place_of(Firing("nightly", 1_700_000_000_123))
    assert place == Route(channel="cron", reference="nightly@2023-11-14T22:13:20.123+00:00")
    assert firing_of(place) == Firing("nightly", 1_700_000_000_123)


def test_what_was_run_by_hand_has_a_place_of_its_own_and_settles_nothing_that_is_due() -> None:
    wanted = Firing("nightly", 1_700_000_000_123, by_hand=True)
    assert place_of(wanted) != place_of(Firing("nightly", 1_700_000_000_123))
    assert firing_of(place_of(wanted)) == wanted
    past = job_histories([RouteSet(at=9, route=place_of(wanted), session=SessionId("a"), by=BY)])["nightly"]
    assert (past.upto, past.last) == (0, "a")


def test_places_of_other_kinds_are_no_firings() -> None:
    assert firing_of(Route(channel="matrix", reference="nightly@2023-11-14T22:13:20+00:00")) is None
    assert firing_of(Route(channel="cron", reference="nightly")) is None
    assert firing_of(Route(channel="cron", reference="nightly@tomorrow")) is None


def test_the_past_is_what_fired_what_was_left_out_and_what_still_waits() -> None:
    events = [
        noted(seen_note(NIGHTLY), at=100),
        fired(1_000, "a"),
        noted(passed_note(NIGHTLY, 2_000, "skipped", "the one before is not over")),
        noted(passed_note(NIGHTLY, 3_000, "queued", "")),
        noted(passed_note(NIGHTLY, 4_000, "queued", "")),
        fired(3_000, "b"),
    ]
    past = job_histories(events)["nightly"]
    assert past.schedule == NIGHTLY.schedule
    assert past.fired == {Firing("nightly", 1_000): "a", Firing("nightly", 3_000): "b"}
    assert past.skipped == {2_000: "the one before is not over"}
    assert past.queued == [4_000]
    assert past.upto == 4_000
    assert past.last == "b"


def test_notes_of_others_and_notes_that_make_no_sense_change_nothing() -> None:
    others = ExtensionNoted(at=1, extension="other", data={"what": "seen", "job": "nightly"})
    odd = [noted({}), noted({"what": "skipped", "job": 3, "due": "x"}), noted({"what": "flew", "job": "nightly"}), fired(1_000, None)]
    past = job_histories([others, *odd]).get("nightly")
    assert past is None or (past.upto, past.fired, past.skipped) == (0, {}, {})
