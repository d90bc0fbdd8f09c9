"""Rules in force, as people see them."""

from curtainwall.model import DisableRule, RuleId
from curtainwall.session import rules_in_force
from tests.support.given import ANN, POLICY, given, ready


def test_every_rule_is_listed_with_its_status() -> None:
    here = given(ready(), DisableRule(by=ANN, rule=RuleId("read-outside")))
    listed = {found.rule.id: found.status for found in rules_in_force(here.state, POLICY)}
    assert set(listed) == {card.id for card in POLICY.rules}
    assert [rule for rule, status in listed.items() if status == "disabled"] == ["read-outside"]
