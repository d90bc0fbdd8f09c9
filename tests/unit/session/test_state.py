"""A state's copy shares nothing that can change, and a state of no session has no facts."""

from copy import deepcopy
from dataclasses import fields

import pytest

from curtainwall.model import SYSTEM, AddLabels, DisableRule, GrantScope, Mode, RuleId
from curtainwall.session import Phase, SessionState, apply, fold
from tests.support.given import (
    ANN,
    NOW,
    OWN,
    SESSION,
    answer,
    asked,
    given,
    push,
    ready,
    requested,
    source,
    turn_running,
    wish,
    write,
)


def test_what_happens_to_a_copy_leaves_the_state_as_it_was() -> None:
    push_, write_ = wish("c1", push("github.com/me/r")), wish("c2", write("/srv/own/a"))
    steps = (
        asked(push_),
        requested(write_),
        answer(push_, scope=GrantScope.SESSION),
        AddLabels(by=SYSTEM, labels=(source("sensitive"),)),
        DisableRule(by=ANN, rule=RuleId("read-outside")),
    )
    events = given(ready(), turn_running(), *steps).log
    for place in range(len(events)):
        state = fold(events[:place])
        kept = deepcopy(state)
        copy = state.copy()
        assert copy == state
        for event in events[place:]:
            apply(copy, event)
        assert state == kept


def test_a_copy_takes_every_field() -> None:
    marked = SessionState()
    for item in fields(SessionState):
        setattr(marked, item.name, _Marked(item.name))
    copy = marked.copy()
    assert [getattr(copy, item.name) for item in fields(SessionState)] == [_Marked(item.name) for item in fields(SessionState)]


class _Marked:
    """Stands in a field and says which one it came from."""

    def __init__(self, name: str) -> None:
        self.name = name

    def copy(self) -> "_Marked":
        return _Marked(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Marked) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


def test_policy_is_told_what_the_session_is() -> None:
    facts = given(ready(), AddLabels(by=SYSTEM, labels=(source("sensitive"),))).state.facts
    assert (facts.session, facts.agent, facts.workspace, facts.mode, facts.channel) == (SESSION, "builtin", OWN, Mode.DEFAULT, "local")
    assert facts.labels == {"sensitive"}


def test_before_the_opening_there_is_neither_workspace_nor_facts() -> None:
    state = SessionState()
    assert state.phase is Phase.OPENING
    with pytest.raises(AssertionError):
        _ = state.workspace
    with pytest.raises(AssertionError):
        _ = state.facts


def test_what_is_spent_and_counted_is_copied() -> None:
    state = given(ready(), requested(wish("c1", write("/srv/own/a")))).state
    copy = state.copy()
    copy.totals.calls += 1
    copy.spent.tokens += 1
    assert (state.totals.calls, state.spent.tokens) == (1, 0)
    assert state.opened is not None
    assert state.opened.at == NOW
