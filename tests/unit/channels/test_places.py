"""Places as people read them."""

import pytest

from curtainwall.channels.places import origin_of, series_of
from curtainwall.model import Route
from curtainwall.model.people import parse_place
from curtainwall.teams.pairs import Pair


def place(channel: str, reference: str) -> Route:
    return Route(channel=channel, reference=reference)


@pytest.mark.parametrize(
    ("text", "channel", "reference"),
    [("web", "web", ""), ("matrix:!room:server", "matrix", "!room:server"), ("web:ann", "web", "ann")],
)
def test_a_place_is_written_as_a_channel_and_what_it_calls_the_place(text: str, channel: str, reference: str) -> None:
    assert parse_place(text) == place(channel, reference)


@pytest.mark.parametrize("text", ["", ":x", " web", "web :x"])
def test_what_names_no_channel_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="write a place as"):
        parse_place(text)


def test_firings_of_one_job_belong_together_and_other_places_stand_alone() -> None:
    assert (
        series_of(place("cron", "nightly@2026-01-02T03:00")) == series_of(place("cron", "nightly@2026-01-03T03:00")) == ("cron", "nightly")
    )
    assert series_of(place("webhook", "deploy/abc/d")) == ("webhook", "deploy")
    assert series_of(place("matrix", "!room:server@x")) is None
    assert series_of(place("cron", "nightly")) is None


def test_an_origin_names_the_job_rather_than_the_firing() -> None:
    assert origin_of([place("cron", "nightly@1"), place("cron", "nightly@2"), place("web", "")]) == "cron: nightly, web"
    assert origin_of([]) == ""


def test_the_origin_of_a_conversation_with_a_team_is_written_like_its_name() -> None:
    assert origin_of([Pair(asker="nobody", team="backend").route]) == "teams: nobody → backend"
    assert origin_of([Pair(asker="a", team="b", thread="x/y").route]) == "teams: a → b (x/y)"
