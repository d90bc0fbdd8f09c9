"""A project's own stream: grants that stand for every session that works there."""

import pytest

from curtainwall.model import Grant, GrantGiven, GrantId, GrantRevoked, GrantScope, NotAllowed, NotFound, RevokeGrant
from curtainwall.session import ProjectState, decide_project, fold_project
from tests.support.given import ANN, EVE, NOW, RULES, moment, opened

ONE, TWO = (Grant(id=GrantId(name), scope=GrantScope.PROJECT, covers=(), by=ANN, at=NOW) for name in ("g1", "g2"))
GIVEN = [GrantGiven(at=NOW, grant=ONE), GrantGiven(at=NOW, grant=TWO)]


def test_grants_stand_until_they_are_revoked() -> None:
    state = fold_project(GIVEN)
    assert state == ProjectState(2, {ONE.id: ONE, TWO.id: TWO})
    after = fold_project([GrantRevoked(at=NOW, grant=ONE.id, by=ANN)], state)
    assert after == ProjectState(3, {TWO.id: TWO})
    assert ONE.id in state.grants


def test_what_a_project_does_not_know_still_counts_as_an_entry() -> None:
    assert fold_project([opened(), *GIVEN]).seq == 3


def test_an_operator_takes_a_projects_grant_back() -> None:
    revoke = RevokeGrant(by=ANN, grant=ONE.id)
    assert decide_project(fold_project(GIVEN), revoke, RULES, moment()) == (GrantRevoked(at=NOW, grant=ONE.id, by=ANN),)
    with pytest.raises(NotFound, match="there is no grant `g1` in this project"):
        decide_project(ProjectState(), revoke, RULES, moment())
    with pytest.raises(NotAllowed, match="`eve` is not an operator of `matrix` and may not revoke"):
        decide_project(fold_project(GIVEN), RevokeGrant(by=EVE, grant=ONE.id), RULES, moment())
