"""A missing real part never passes unseen."""

import pytest

from tests.support.covers import covers
from tests.support.real_parts import RealPart, report, require

GONE = RealPart("unobtainium", lambda: None, "dig for it")


@covers("real-part.missing-skips-on-a-laptop")
def test_a_missing_part_skips_on_a_laptop_and_says_how_to_get_it() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"`unobtainium` is missing .* dig for it"):
        require(GONE, environ={})


@covers("real-part.missing-fails-in-ci")
def test_a_missing_part_fails_in_ci() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"`unobtainium` is missing"):
        require(GONE, environ={"CI": "true"})


def test_a_part_that_is_there_tells_its_version() -> None:
    assert require(RealPart("copper", lambda: "29", ""), environ={"CI": "true"}) == "29"


def test_the_head_of_a_run_names_every_part() -> None:
    assert {line.partition(":")[0] for line in report()} >= {"python", "sqlite", "kernel", "bubblewrap"}
