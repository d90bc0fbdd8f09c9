"""Standing answers: what has been answered before it is asked."""

from collections.abc import Iterable, Sequence

from curtainwall.model import Cover, Grant, GrantScope, Mode, PathFacts, Resource, Role, RuleId, Subject, Verdict, resource_of
from curtainwall.session.rules import Rules
from curtainwall.session.state import SessionState

_NEVER_BYPASSED = (Role.USE_CREDENTIAL, Role.RAISE_BUDGET)
_EDIT_RULES = frozenset({RuleId("project-edit")})
_CREDENTIAL_RULES = frozenset({RuleId("credential-asks")})


def covers_of(verdict: Verdict, subject: Subject) -> tuple[Cover, ...]:
    """Return what a human is asked: every asked role and resource with the rules that ask."""
    asked = ((resource_of(finding, subject), finding) for finding in verdict.asked)
    return tuple(Cover(role=resource.role, value=_asked_value(resource), rules=finding.because) for resource, finding in asked)


def _asked_value(resource: Resource) -> str:
    """Return a resource as people are asked about it. INVARIANT: no path is written as a whole tree is: a yes to it would be to both."""
    value = resource.value
    if isinstance(resource.facts, PathFacts) and resource.facts.whole:
        return f"{value.rstrip('/')}/**"
    is_path = resource.role in (Role.READ_PATH, Role.WRITE_PATH, Role.DELETE_PATH)
    return f"{value[:-2]}./**" if is_path and value.endswith("/**") else value


def covered(asked: Iterable[Cover], by: Iterable[Cover]) -> bool:
    """Tell whether every asked role, resource and rule was among those that were answered."""
    known = {(cover.role, cover.value): frozenset(cover.rules) for cover in by}
    return all((cover.role, cover.value) in known and known[cover.role, cover.value].issuperset(cover.rules) for cover in asked)


def reach(wanted: GrantScope, covers: Sequence[Cover]) -> GrantScope:
    """Return how far a human's yes reaches: one to credentials alone holds for the session, because each is asked for once in it.

    A rule of the user's own that asks about a credential is another question, and `once` stays once.
    """
    once_a_session = all(cover.role is Role.USE_CREDENTIAL and frozenset(cover.rules) == _CREDENTIAL_RULES for cover in covers)
    return GrantScope.SESSION if wanted is GrantScope.ONCE and covers and once_a_session else wanted


def standing_answer(state: SessionState, subject: Subject, verdict: Verdict, rules: Rules) -> str | None:
    """Return the name of the one standing answer that covers everything asked, or None.

    INVARIANT: half an answer is none. Two answers that cover one half each do not add up, and an ask that does not say what it asks
    is covered by nothing.
    """
    asked = covers_of(verdict, subject)
    if not asked:
        return None
    for grant in (*state.grants.values(), *rules.project_grants.values()):
        if _answers(grant, subject, asked):
            return grant.id
    if all(finding.because and state.disabled.issuperset(finding.because) for finding in verdict.asked):
        return "disabled-rule"
    if state.mode is Mode.ACCEPT_EDITS and all(finding.because and _EDIT_RULES.issuperset(finding.because) for finding in verdict.asked):
        return "mode:accept-edits"
    if state.mode is Mode.BYPASS and all(cover.role not in _NEVER_BYPASSED for cover in asked):
        return "mode:bypass"
    return None


def _answers(grant: Grant, subject: Subject, asked: tuple[Cover, ...]) -> bool:
    if grant.digest is not None and grant.digest != subject.digest:
        return False
    return still_covers(subject, asked, grant.covers)


def still_covers(subject: Subject, asked: tuple[Cover, ...], answered: tuple[Cover, ...]) -> bool:
    """Tell whether an answer that was given for a subject holds for what it asks now.

    Two steps of a plan may ask about the same thing because of different rules, so a plan has to ask exactly what it asked.
    """
    return asked == answered if subject.steps else covered(asked, answered)
