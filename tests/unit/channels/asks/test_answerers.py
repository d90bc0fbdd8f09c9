"""Who may answer an ask, in words: short, inert, and silent where there is nothing to tell."""

import pytest

from curtainwall.channels.asks.answerers import MayAnswer, answerer_words
from tests.support.covers import covers


@covers("approvals.who-may-answer")
@pytest.mark.parametrize("found", [{}, {"web": ("ann",)}, {"web": ("ann",), "matrix": ("ann",)}])
def test_whoever_runs_the_house_is_not_told_of_themselves(found: MayAnswer) -> None:
    assert answerer_words(found, "ann") == ""


@covers("approvals.who-may-answer")
def test_everybody_else_is_named_with_their_channel() -> None:
    found = {"matrix": ("@olga:example.org",), "web": ("ann", "bob", "carl")}
    words = "may be answered on matrix by @olga:example.org, on web by ann, bob or carl, and at its machine"
    assert answerer_words(found, "ann") == words
    assert answerer_words({"web": ("ann",)}, "root") == "may be answered on web by ann, and at its machine"


@covers("approvals.who-may-answer")
def test_the_one_operator_of_a_channel_is_not_told_there_that_they_may_where_nobody_else_may() -> None:
    alone = {"matrix": ("@olga:example.org",)}
    assert answerer_words(alone, "ann", "matrix") == ""
    assert answerer_words({**alone, "web": ("ann",)}, "ann", "matrix") == ""
    for channel in ("", "web"):
        assert answerer_words(alone, "ann", channel) == "may be answered on matrix by @olga:example.org, and at its machine"
    for more in ({"matrix": ("@bob:example.org", "@olga:example.org")}, {**alone, "web": ("carl",)}, {"web": ("carl",)}):
        assert answerer_words(more, "ann", "matrix") != ""


def test_a_long_list_of_people_is_cut_and_none_of_them_draws_on_the_screen() -> None:
    many = tuple(f"person-{number:02}" for number in range(40))
    assert answerer_words({"web": many}, "ann") == (
        "may be answered on web by person-00, person-01, person-02, person-03, person-04 and 35 more, and at its machine"
    )
    assert "\x1b" not in answerer_words({"mine": ("\x1b[2Jann",)}, "root")
