"""Verdicts: one answer is stricter than another, and a denial names its rule."""

from curtainwall.model import SYSTEM, Effect, RuleId, Verdict, Who, denial, strictest


def test_deny_is_stricter_than_ask_and_ask_than_allow() -> None:
    assert strictest((Effect.ALLOW, Effect.DENY, Effect.ASK)) is Effect.DENY
    assert strictest((Effect.ASK, Effect.ALLOW)) is Effect.ASK
    assert strictest((Effect.ALLOW,)) is Effect.ALLOW


def test_a_structural_denial_names_its_rule() -> None:
    assert denial("unknown-tool", "no") == Verdict(effect=Effect.DENY, because=(RuleId("unknown-tool"),), reason="no")


def test_people_are_named_with_their_channel_unless_they_are_here() -> None:
    assert str(Who(name="ann")) == "ann"
    assert str(Who(name="ann", channel="matrix")) == "ann on matrix"
    assert str(SYSTEM) == "curtainwall on runtime"
