"""Standing answers: grants that answer later asks, in one session or in every session of a project."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field, replace

from curtainwall import policy
from curtainwall.model import (
    BY_HOOK,
    FOLLOW_INSTRUCTIONS,
    PATH_ROLES,
    TRUST_SKILL,
    AnyEvent,
    CallPermitted,
    Cover,
    Effect,
    Grant,
    GrantGiven,
    GrantId,
    GrantRevoked,
    GrantScope,
    HostFacts,
    Label,
    Mode,
    Moment,
    NotFound,
    PathFacts,
    Resource,
    RevokeGrant,
    Role,
    RuleId,
    Subject,
    Verdict,
    is_external,
    record,
    resource_of,
)
from curtainwall.session.rules import Rules
from curtainwall.session.state import SessionState

ONE_TEXT = frozenset({FOLLOW_INSTRUCTIONS, TRUST_SKILL})
"""The calls whose approval covers one exact text, for one use at a time."""

_REMOTE_ROLES = (Role.READ_REMOTE, Role.WRITE_REMOTE)
_CREDENTIAL_RULES = frozenset({RuleId("credential-asks")})
_DISABLED, _BY_MODE = "disabled-rule", "mode:"


def covers_of(verdict: Verdict, subject: Subject) -> tuple[Cover, ...]:
    """Return what a human is asked about: every asked role and resource, with the rules that ask."""
    asked = ((resource_of(finding, subject), finding) for finding in verdict.findings if finding.effect is Effect.ASK)
    return tuple(Cover(role=resource.role, value=_asked_value(resource), rules=finding.because) for resource, finding in asked)


def _asked_value(resource: Resource) -> str:
    """Return the text of a resource in an ask.

    INVARIANT: a path and a whole tree have different texts, and so have a repository reached in the clear and one reached encrypted.
    Otherwise the approval of one would cover both.
    """
    value = resource.value
    if resource.role in _REMOTE_ROLES and isinstance(resource.facts, HostFacts) and not resource.facts.secure:
        return f"{value} (not encrypted)"
    if isinstance(resource.facts, PathFacts) and resource.facts.whole:
        return f"{value.rstrip('/')}/**"
    is_path = resource.role in PATH_ROLES
    return f"{value[:-2]}./**" if is_path and value.endswith("/**") else value


def covered(asked: Iterable[Cover], by: Iterable[Cover]) -> bool:
    """Tell whether the answer covered every role, resource and rule that asks now."""
    known = {(cover.role, cover.value): frozenset(cover.rules) for cover in by}
    return all((cover.role, cover.value) in known and known[cover.role, cover.value].issuperset(cover.rules) for cover in asked)


def scope_of_answer(wanted: GrantScope, covers: Sequence[Cover]) -> GrantScope:
    """Return the scope of a human's approval: one for credentials alone lasts for the session, which asks once for each credential.

    If a rule of the user asks about a credential, that is a different question, and `once` remains once.
    """
    once_a_session = all(cover.role is Role.USE_CREDENTIAL and frozenset(cover.rules) == _CREDENTIAL_RULES for cover in covers)
    return GrantScope.SESSION if wanted is GrantScope.ONCE and covers and once_a_session else wanted


def is_for_one_call(tool: str, covers: Iterable[Cover]) -> bool:
    """Tell whether a lasting approval covers only the exact call, because the resources do not determine what was approved.

    What an external tool does depends on its arguments, no matter what else is asked about.
    """
    return is_external(tool) or any(cover.left_open for cover in covers)


def standing_answer(state: SessionState, subject: Subject, asked: tuple[Cover, ...], rules: Rules) -> str | None:
    """Return the id of a single standing answer that covers everything a subject asks about, or None.

    INVARIANT: half an answer does not count. Two answers that cover one half each do not add up, and an ask that does not say what it asks
    about is never covered.
    """
    if not asked:
        return None
    for grant in (*state.grants.values(), *rules.project_grants.values()):
        if _answers(grant, subject, asked):
            return grant.id
    if all(cover.rules and state.disabled.issuperset(cover.rules) for cover in asked):
        return _DISABLED
    if state.mode is Mode.ACCEPT_EDITS and all(set(cover.rules) == {policy.PROJECT_EDIT} for cover in asked):
        return f"{_BY_MODE}accept-edits"
    if state.mode is Mode.BYPASS and all(cover.role not in policy.NEVER_BYPASSED for cover in asked):
        return f"{_BY_MODE}bypass"
    return None


@record
class Since:
    """Changes since a permit: labels set by other calls, and whether a grant was revoked."""

    labels: Collection[Label] = ()
    is_revoked: bool = False


def still_permitted(state: SessionState, subject: Subject, permit: CallPermitted, rules: Rules, since: Since) -> bool:
    """Tell whether a permitted call would be permitted now without asking again.

    The labels that the permit itself set do not count against it. A person's approval of this very call still counts, unless a grant was
    revoked since, which may have been that approval. A hook's question is only known to be answered by such an approval.
    """
    by_person = any(name != _DISABLED and not name.startswith(_BY_MODE) for name in permit.answered_by)
    counts = by_person and not since.is_revoked
    if state.closed is not None or (_hook_asked(permit) and not counts):
        return False
    labels = frozenset(label for label, source in state.labels.items() if source.call != permit.call or label in since.labels)
    verdict = policy.judge(rules.policy, subject, replace(state.facts, labels=labels))
    if verdict.effect is not Effect.ASK:
        return verdict.effect is Effect.ALLOW
    asked = covers_of(verdict, subject)
    if counts and still_covers(subject, asked, covers_of(permit.verdict, subject)):
        return True
    return standing_answer(state, subject, asked, rules) is not None


def _hook_asked(permit: CallPermitted) -> bool:
    """Tell whether a hook asked; after a wait, the sign of this is an answer to something that the rules allow."""
    verdict = permit.verdict
    is_more = verdict.effect is Effect.ALLOW and bool(permit.answered_by)
    return is_more or any(rule.startswith(BY_HOOK) for rule in verdict.because)


def _answers(grant: Grant, subject: Subject, asked: tuple[Cover, ...]) -> bool:
    # INVARIANT: if resources leave open what a call does, the approval of one call covers no other.
    if grant.lapsed or (grant.digest is None and is_for_one_call(subject.tool, asked)):
        return False
    if grant.digest is not None and grant.digest != subject.digest:
        return False
    return still_covers(subject, asked, grant.covers)


def still_covers(subject: Subject, asked: tuple[Cover, ...], answered: tuple[Cover, ...]) -> bool:
    """Tell whether an answer for a subject covers what the subject asks about now.

    Two steps of a plan may ask about the same thing because of different rules, so a plan has to ask exactly the same as before.
    """
    return asked == answered if subject.steps else covered(asked, answered)


@record
class ProjectState:
    """The fold of a project's log, and the log's end."""

    seq: int = 0
    grants: dict[GrantId, Grant] = field(default_factory=dict[GrantId, Grant])


def fold_project(events: Iterable[AnyEvent], state: ProjectState | None = None) -> ProjectState:
    """Return the state after the events; those that do not concern a project are ignored."""
    before = state or ProjectState()
    grants, seq = dict(before.grants), before.seq
    for event in events:
        seq += 1
        if isinstance(event, GrantGiven):
            grants[event.grant.id] = event.grant
        elif isinstance(event, GrantRevoked):
            grants.pop(event.grant, None)
    return ProjectState(seq, grants)


def decide_project(state: ProjectState, command: RevokeGrant, rules: Rules, moment: Moment) -> tuple[AnyEvent, ...]:
    """Revoke a grant of the project."""
    rules.require_operator(command.by, "revoke")
    if command.grant not in state.grants:
        raise NotFound(f"there is no grant `{command.grant}` in this project")
    return (GrantRevoked(at=moment.at, grant=command.grant, by=command.by),)
