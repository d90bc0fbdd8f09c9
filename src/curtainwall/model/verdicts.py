"""The verdicts of policy; a verdict always carries the ids of the rules that caused it."""

from collections.abc import Iterable
from enum import StrEnum

from curtainwall.model.frozen import Frozen
from curtainwall.model.ids import RuleId
from curtainwall.model.subjects import Resource, Subject


class Effect(StrEnum):
    """The three answers, from the mildest to the strictest."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


def strictest(effects: Iterable[Effect]) -> Effect:
    """Return the strictest of some effects."""
    return max(effects, key=tuple(Effect).index)


class Finding(Frozen):
    """The effect for one resource of a subject (by its index) or of one step of a plan, and the rules that caused it."""

    resource: int
    effect: Effect
    because: tuple[RuleId, ...]
    step: int | None = None


def resource_of(finding: Finding, subject: Subject) -> Resource:
    """Return the resource that a finding is about."""
    return (subject if finding.step is None else subject.steps[finding.step]).resources[finding.resource]


class Verdict(Frozen):
    """The strictest finding over a subject's resources."""

    effect: Effect
    because: tuple[RuleId, ...]
    reason: str = ""
    findings: tuple[Finding, ...] = ()


class Mode(StrEnum):
    """How much a session may do without asking, from the strictest; people may write `ask` for `default`."""

    PLAN = "plan"
    REVIEW = "review"
    DEFAULT = "default"
    ACCEPT_EDITS = "accept-edits"
    BYPASS = "bypass"

    @classmethod
    def _missing_(cls, value: object) -> "Mode | None":
        return cls.DEFAULT if value == "ask" else None


def stricter(one: Mode, other: Mode) -> Mode:
    """Return the stricter of two modes."""
    return min(one, other, key=tuple(Mode).index)


def denial(rule: str, reason: str) -> Verdict:
    """Return a structural denial, which no rule file can override."""
    return Verdict(effect=Effect.DENY, because=(RuleId(rule),), reason=reason)
