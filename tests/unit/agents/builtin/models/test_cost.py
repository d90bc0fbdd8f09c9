"""A provider's counts are believed where they can be true; dollars follow the tokens, or are unknown."""

import math

import pytest

from curtainwall.agents.builtin.models import Price
from curtainwall.agents.builtin.models.usage import Counts, Sizes, usage_of
from curtainwall.model import Basis, Usage
from tests.support.covers import covers

SIZES = Sizes(input=4_000, output=400)


def used(counts: Counts, *, sizes: Sizes = SIZES, model: str = "claude-sonnet-5", price: Price | None = None) -> Usage:
    return usage_of(counts, sizes, provider="anthropic", model=model, price=price)


@covers("models.usage-and-cost")
def test_the_providers_own_counts_are_measured_and_priced() -> None:
    usage = used(Counts(1000, 100, 400), price=Price(input=3, output=15, cached=0.3))
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (1000, 100, 400)
    assert usage.dollars == pytest.approx((600 * 3 + 400 * 0.3 + 100 * 15) / 1e6)
    assert (usage.tokens_basis, usage.dollars_basis) == (Basis.MEASURED, Basis.MEASURED)


@covers("models.usage-and-cost")
def test_a_price_from_the_list_and_a_model_that_is_not_on_it() -> None:
    assert used(Counts(1_000, 100)).dollars > 0
    unknown = used(Counts(1_000, 100), model="nobody-knows-it")
    assert (unknown.dollars, unknown.dollars_basis, unknown.tokens_basis) == (0.0, Basis.UNKNOWN, Basis.MEASURED)


@pytest.mark.parametrize("absurd", [-1, math.nan, math.inf, 10**9, 10**30, None, "many", True, 0, 0.5, 3])
@covers("models.absurd-counts-are-not-believed")
def test_an_absurd_count_is_replaced_by_an_estimate(absurd: object) -> None:
    usage = used(Counts(absurd, 100))
    assert (usage.input_tokens, usage.output_tokens, usage.tokens_basis) == (1000, 100, Basis.ESTIMATED)
    assert usage.dollars_basis is Basis.ESTIMATED


@covers("models.absurd-counts-are-not-believed")
def test_what_was_thought_and_not_shown_is_believed_and_a_billion_is_not() -> None:
    assert used(Counts(1000, 60_000)).output_tokens == 60_000
    assert used(Counts(1000, 10**9)).output_tokens == 100


@covers("models.absurd-counts-are-not-believed")
def test_more_from_the_cache_than_was_read_is_at_most_what_was_read() -> None:
    assert used(Counts(1000, 100, 5_000)).cached_tokens == 1000
    assert used(Counts(1000, 100, -5)).cached_tokens == 0
