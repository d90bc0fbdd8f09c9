"""Moments: the same one mints the same ids, another one mints others."""

from curtainwall.model import Moment
from tests.support.given import NOW, SEED


def test_the_same_moment_mints_the_same_ids() -> None:
    one, same = Moment(NOW, SEED), Moment(NOW, SEED, logged=7)
    assert one.approval_id("c1") == same.approval_id("c1")
    assert one.grant_id("c1") == same.grant_id("c1")
    assert one.permit_id("c1") == same.permit_id("c1")


def test_another_seed_or_another_name_mints_others() -> None:
    one, other = Moment(NOW, SEED), Moment(NOW, bytes(16))
    assert len({one.approval_id("c1"), one.approval_id("c2"), other.approval_id("c1")}) == 3
    assert len({one.permit_id("c1"), one.permit_id("c2"), other.permit_id("c1")}) == 3


def test_a_grant_is_told_from_an_approval_by_its_length_and_first_letter() -> None:
    grant = Moment(NOW, SEED).grant_id("c1")
    assert grant.startswith("g")
    assert len(grant) == 7
    assert len(Moment(NOW, SEED).approval_id("c1")) == 6


def test_permits_sort_by_time() -> None:
    assert Moment(NOW, SEED).permit_id("c9") < Moment(NOW + 1, bytes(16)).permit_id("c1")
