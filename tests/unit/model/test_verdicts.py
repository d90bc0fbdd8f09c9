"""Verdicts: strictness has an order, and a verdict names what it asks."""

from curtainwall.model import SYSTEM, Effect, Finding, RuleId, Verdict, Who, denial


def test_deny_is_stricter_than_ask_and_ask_than_allow() -> None:
    assert sorted(Effect, key=lambda effect: effect.strictness) == [Effect.ALLOW, Effect.ASK, Effect.DENY]


def test_a_verdict_knows_which_findings_ask() -> None:
    findings = tuple(Finding(resource=place, effect=effect, because=()) for place, effect in enumerate(Effect))
    assert [finding.resource for finding in Verdict(effect=Effect.DENY, because=(), findings=findings).asked] == [1]


def test_a_structural_denial_names_its_rule() -> None:
    assert denial("unknown-tool", "no") == Verdict(effect=Effect.DENY, because=(RuleId("unknown-tool"),), reason="no")


def test_people_are_named_with_their_channel_unless_they_are_here() -> None:
    assert str(Who(name="ann")) == "ann"
    assert str(Who(name="ann", channel="matrix")) == "ann on matrix"
    assert str(SYSTEM) == "curtainwall on runtime"
