"""Who may control a session, and which grants stand in a project."""

import pytest

from curtainwall.model import SYSTEM, Grant, GrantId, GrantScope, Who
from tests.support.given import ANN, EVE, NOW, OLGA, RULES


@pytest.mark.parametrize(
    ("who", "may"), [(ANN, True), (SYSTEM, True), (OLGA, True), (EVE, False), (Who(name="olga", channel="web"), False)]
)
def test_the_local_user_and_a_channels_operators_may_control(who: Who, may: bool) -> None:
    assert RULES.may_control(who) is may


def test_project_grants_are_taken_in_and_let_go() -> None:
    grants = {GrantId("g1"): Grant(id=GrantId("g1"), scope=GrantScope.PROJECT, covers=(), by=ANN, at=NOW)}
    assert RULES.with_project_grants({}) is RULES
    assert RULES.with_project_grants(grants).project_grants == grants
    assert RULES.with_project_grants(grants).with_project_grants({}).project_grants == {}
