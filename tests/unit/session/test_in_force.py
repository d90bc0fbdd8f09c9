"""Rules in force, as people see them."""

from curtainwall.model import (
    AnyEvent,
    ApprovalAsked,
    ApprovalId,
    CallId,
    Cover,
    Digest,
    LabelsAdded,
    Mode,
    ModeChanged,
    Role,
    RuleDisabled,
    RuleEnabled,
    RuleId,
    RuleStatus,
)
from curtainwall.session import fold, rules_in_force
from tests.support.covers import covers
from tests.support.given import ANN, NOW, OLGA, POLICY, ready, source


def standings(*events: AnyEvent) -> dict[str, RuleStatus]:
    told = (*ready(), *events)
    state = fold(event for event in told if not isinstance(event, ApprovalAsked))
    return {found.rule: found for found in rules_in_force(state, POLICY, told)}


def disabled(rule: str) -> RuleDisabled:
    return RuleDisabled(at=NOW, rule=RuleId(rule), by=OLGA)


def asked(approval: str, *rules: str) -> ApprovalAsked:
    asked_for = (Cover(role=Role.READ_PATH, value="/x", rules=tuple(map(RuleId, rules))),)
    digest, policy = Digest("d"), Digest("p")
    return ApprovalAsked(at=NOW, approval=ApprovalId(approval), call=CallId("c"), digest=digest, covers=asked_for, shown="", policy=policy)


@covers("rules.standing")
def test_every_rule_is_listed_and_one_that_was_disabled_says_by_whom() -> None:
    listed = standings(disabled("read-outside"), disabled("send-asks"), RuleEnabled(at=NOW, rule=RuleId("send-asks"), by=ANN))
    assert set(listed) == {card.id for card in POLICY.rules}
    assert [rule for rule, found in listed.items() if found.status == "disabled"] == ["read-outside"]
    assert listed["read-outside"].why == "its asks count as answered, by olga on matrix"


@covers("rules.standing")
def test_a_rule_that_waits_for_a_label_is_inactive_until_it_is_set_and_then_names_the_call() -> None:
    before, after = standings(), standings(LabelsAdded(at=NOW, labels=(source("sensitive", "read-path /finance", "c7"),)))
    assert (before["sensitive-stays"].status, before["sensitive-stays"].why) == ("inactive", "the session does not count as sensitive")
    assert (after["sensitive-stays"].status, after["sensitive-stays"].why) == (
        "active",
        "sensitive was set by call c7 (read-path /finance)",
    )
    assert [found.call for found in after["sensitive-stays"].labels] == ["c7"]
    assert after["untrusted-sends"].status == "inactive"


@covers("rules.standing")
def test_a_rule_of_one_mode_is_inactive_in_others() -> None:
    assert standings()["plan-reads-only"].why == "the mode is default, not plan"
    assert standings(ModeChanged(at=NOW, mode=Mode.PLAN, by=ANN))["plan-reads-only"].status == "active"


@covers("rules.standing")
def test_a_rule_tells_how_often_it_asked() -> None:
    listed = standings(asked("a1", "read-outside"), asked("a2", "read-outside", "sensitive-stays"))
    assert [(rule, found.asked) for rule, found in listed.items() if found.asked] == [("read-outside", 2), ("sensitive-stays", 1)]
