"""Budgets: warned at most of it, exhausted at all of it, and a raise starts anew."""

import pytest

from curtainwall.model import (
    SYSTEM,
    AnyEvent,
    Basis,
    BudgetExhausted,
    BudgetKind,
    BudgetRaised,
    BudgetWarned,
    CloseSession,
    CountSpending,
    Limits,
    ModelRequested,
    ModelResponded,
    Payload,
    RaiseBudget,
    RecordProgress,
    SpendingCounted,
    Usage,
    WorkTimed,
)
from curtainwall.session import Figure, figures
from tests.support.covers import covers
from tests.support.given import ANN, NOW, TURN, Situation, given, ready, turn_running

LIMITS = Limits(tokens=100, steps=10, seconds=100, dollars=1.0)


def told(*events: object) -> RecordProgress:
    return RecordProgress(by=SYSTEM, events=events)


def step(number: int, usage: Usage | None = None) -> tuple[AnyEvent, AnyEvent]:
    return (
        ModelRequested(at=NOW, turn=TURN, request=f"r{number}", base=None, added=Payload(), model="demo"),
        ModelResponded(at=NOW, turn=TURN, request=f"r{number}", raw=Payload(), normalised=Payload(), usage=usage or Usage()),
    )


def used(kind: BudgetKind, amount: int) -> RecordProgress:
    """Return progress that uses so many hundredths of the limit above."""
    match kind:
        case BudgetKind.TOKENS:
            return told(*step(0, Usage(input_tokens=amount - amount // 2, output_tokens=amount // 2)))
        case BudgetKind.STEPS:
            return told(*(event for number in range(amount // 10) for event in step(number)))
        case BudgetKind.SECONDS:
            return told(WorkTimed(at=NOW, seconds=amount))
        case BudgetKind.DOLLARS:
            return told(*step(0, Usage(dollars=amount / 100)))


def news(here: Situation, command: RecordProgress) -> list[AnyEvent]:
    return [event for event in here.when(command).events if isinstance(event, (BudgetWarned, BudgetExhausted))]


@pytest.fixture
def here() -> Situation:
    return given(ready(limits=LIMITS), turn_running())


@covers("session.budgets-warn-and-exhaust")
@pytest.mark.parametrize("kind", BudgetKind)
def test_each_budget_warns_at_80_percent_and_is_used_up_at_100(here: Situation, kind: BudgetKind) -> None:
    limit = getattr(LIMITS, kind)
    assert news(here, used(kind, 70)) == []
    assert news(here, used(kind, 80)) == [BudgetWarned(at=NOW, kind=kind, used=limit * 0.8, limit=limit)]
    assert news(here, used(kind, 100)) == [BudgetExhausted(at=NOW, kind=kind, used=limit, limit=limit)]


def test_a_warning_is_given_once_and_then_the_end_once(here: Situation) -> None:
    ten = told(WorkTimed(at=NOW, seconds=10))
    kinds: list[str] = []
    for _ in range(13):
        outcome = here.when(ten)
        kinds += (type(event).__name__ for event in outcome.events[1:])
        here = here.after(outcome.events)
    assert kinds == ["BudgetWarned", "BudgetExhausted"]
    assert here.state.exhausted == {BudgetKind.SECONDS}


@covers("session.a-raise-starts-anew")
def test_a_raise_starts_anew(here: Situation) -> None:
    here = here.happened(told(WorkTimed(at=NOW, seconds=80)))
    here = here.when(RaiseBudget(by=ANN, kind=BudgetKind.SECONDS, limit=200))
    here = here.then(BudgetRaised(at=NOW, kind=BudgetKind.SECONDS, limit=200, by=ANN))
    assert here.state.warned == here.state.exhausted == set()
    assert here.state.limits == LIMITS.model_copy(update={"seconds": 200})
    assert news(here, told(WorkTimed(at=NOW, seconds=79))) == []
    assert news(here, told(WorkTimed(at=NOW, seconds=80))) == [BudgetWarned(at=NOW, kind=BudgetKind.SECONDS, used=160, limit=200)]


@covers("session.a-raise-starts-anew")
def test_a_raise_that_is_not_enough_leaves_the_budget_used_up(here: Situation) -> None:
    here = here.happened(told(WorkTimed(at=NOW, seconds=150)))
    here = here.when(RaiseBudget(by=ANN, kind=BudgetKind.SECONDS, limit=120))
    here = here.then(BudgetRaised, BudgetExhausted(at=NOW, kind=BudgetKind.SECONDS, used=150, limit=120))
    assert here.state.exhausted == {BudgetKind.SECONDS}


@pytest.mark.parametrize("limit", [10, 9, 0, -1, 10.9])
def test_a_budget_is_only_raised_upwards(here: Situation, limit: float) -> None:
    here.when(RaiseBudget(by=ANN, kind=BudgetKind.STEPS, limit=limit)).then_refused(
        "the steps budget is already 10, and it can only be raised"
    )


def test_a_raised_limit_stays_the_kind_of_number_it_was(here: Situation) -> None:
    here = here.happened(RaiseBudget(by=ANN, kind=BudgetKind.STEPS, limit=20.0), RaiseBudget(by=ANN, kind=BudgetKind.DOLLARS, limit=2))
    assert type(here.state.limits.steps) is int
    assert type(here.state.limits.dollars) is float


@pytest.mark.parametrize("limit", [float("nan"), float("inf")])
def test_a_limit_is_a_number(limit: float) -> None:
    with pytest.raises(ValueError, match="finite number"):
        RaiseBudget(by=ANN, kind=BudgetKind.DOLLARS, limit=limit)


@pytest.mark.parametrize("usage", [{"input_tokens": -1}, {"output_tokens": -1}, {"dollars": -0.1}, {"dollars": float("nan")}])
def test_usage_never_gives_budget_back(usage: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"greater than or equal to 0|finite number"):
        Usage.model_validate(usage)
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        WorkTimed(at=NOW, seconds=-1)


def test_a_figure_says_how_sure_it_is(here: Situation) -> None:
    measured = Usage(input_tokens=1, dollars=0.1, tokens_basis=Basis.MEASURED, dollars_basis=Basis.ESTIMATED)
    here = here.happened(told(*step(1, measured)))
    assert [figure.basis for figure in figures(here.state)] == [Basis.MEASURED, Basis.MEASURED, Basis.MEASURED, Basis.ESTIMATED]
    here = here.happened(told(*step(2)), told(*step(3, measured)))
    assert [figure.basis for figure in figures(here.state)] == [Basis.UNKNOWN, Basis.MEASURED, Basis.MEASURED, Basis.UNKNOWN]
    assert figures(here.state)[0] == Figure(BudgetKind.TOKENS, 2, 100, Basis.UNKNOWN)


def test_a_limit_of_nothing_is_used_up() -> None:
    assert Figure(BudgetKind.STEPS, 0, 0, Basis.MEASURED).share == 1
    here = given(ready(limits=Limits(steps=0)), turn_running())
    assert news(here, told(WorkTimed(at=NOW, seconds=1))) == [BudgetExhausted(at=NOW, kind=BudgetKind.STEPS, used=0, limit=0)]


def test_what_is_used_up_at_once_is_not_warned_of_afterwards(here: Situation) -> None:
    here = here.happened(told(WorkTimed(at=NOW, seconds=120)))
    assert here.state.exhausted == {BudgetKind.SECONDS}
    assert news(here, told(WorkTimed(at=NOW, seconds=10))) == []


@covers("teams.a-caller-has-one-budget")
def test_what_others_used_of_the_same_budget_counts_and_replaces_what_was_counted_before(here: Situation) -> None:
    here = here.happened(told(*step(0, Usage(input_tokens=30, tokens_basis=Basis.MEASURED))))
    here = here.when(CountSpending(by=SYSTEM, usage=Usage(input_tokens=60))).then(SpendingCounted, BudgetWarned)
    assert figures(here.state)[0] == Figure(BudgetKind.TOKENS, 90, 100, Basis.UNKNOWN)
    assert here.when(CountSpending(by=SYSTEM, usage=Usage(input_tokens=60))).events == ()
    here = here.happened(CountSpending(by=SYSTEM, usage=Usage(input_tokens=75)))
    assert here.state.exhausted == {BudgetKind.TOKENS}
    assert here.state.spent.tokens == 30, "what a turn used is only what it used here"


@covers("teams.a-caller-has-one-budget")
def test_a_budget_can_be_raised_in_a_session_that_is_closed(here: Situation) -> None:
    here = here.happened(CloseSession(by=ANN, reason="the client has left"), RaiseBudget(by=ANN, kind=BudgetKind.TOKENS, limit=200))
    assert here.state.limits.tokens == 200
