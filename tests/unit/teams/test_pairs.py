"""Pairs and their places."""

from hypothesis import given
from hypothesis import strategies as st

from curtainwall.model import Route
from curtainwall.teams.pairs import Pair

NAMES = st.text(min_size=1, max_size=12)
PARTS = st.lists(st.text("ab/%", min_size=1, max_size=3), min_size=3, max_size=3)


@given(NAMES, NAMES, st.text(max_size=12))
def test_a_place_leads_back_to_its_pair(asker: str, team: str, thread: str) -> None:
    try:
        (asker + team + thread).encode()
    except UnicodeEncodeError:
        return
    pair = Pair(asker=asker, team=team, thread=thread)
    assert Pair.at(pair.route) == pair


@given(PARTS, PARTS)
def test_no_two_pairs_share_a_place(one: list[str], other: list[str]) -> None:
    first, second = (Pair(asker=parts[0], team=parts[1], thread=parts[2]) for parts in (one, other))
    assert (first.route == second.route) == (first == second)


@given(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,9}\Z"), st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,9}\Z"), st.text(max_size=12))
def test_the_name_of_a_pair_says_which_it_is_whatever_the_thread_is_called(asker: str, team: str, thread: str) -> None:
    pair = Pair(asker=asker, team=team, thread=thread)
    assert Pair.named(str(pair)) == pair


def test_other_places_are_no_pairs() -> None:
    for channel, reference in (("web", "a/b/"), ("teams", "a/b"), ("teams", "a/b/c/d"), ("teams", "a/b/%63")):
        assert Pair.at(Route(channel=channel, reference=reference)) is None
    for name in ("frontend from outside", "a → ", "", "a → b (", "é → b"):
        assert Pair.named(name) is None
