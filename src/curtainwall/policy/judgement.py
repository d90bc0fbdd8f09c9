"""Rules in, verdict out. No I/O, no clock; what is remembered changes nothing."""

from collections.abc import Iterable
from dataclasses import replace

from curtainwall.model import (
    PATH_ROLES,
    Effect,
    Finding,
    Label,
    Mode,
    PathFacts,
    Resource,
    Role,
    RuleId,
    Subject,
    SubjectKind,
    Verdict,
    denial,
    is_beneath,
)
from curtainwall.policy.cedar import LABEL, CedarQuestion, CedarReply, RuleSet
from curtainwall.policy.coverage import aliases_of_command, paths_beneath
from curtainwall.policy.entities import Entity, SessionFacts, entity_of, is_judged, path_entity, question, surroundings
from curtainwall.policy.rulebook import FoundEffect, Policy
from curtainwall.policy.rules import NO_RESOURCES, NO_RULE, POLICY_ERROR, PROTECTED_PATH, UNKNOWN_TOOL

_LABELLED = ("Path", "Host", "Remote", "Tool", "Team")
_FEW = 8
_Also = tuple[RuleSet, CedarQuestion]
_ERROR: FoundEffect = (Effect.DENY, (POLICY_ERROR,))


def judge(policy: Policy, subject: Subject, facts: SessionFacts) -> Verdict:
    """Return the strictest verdict over the subject's resources; deny if it has none that a rule knows.

    Each step of a plan is judged as it would be on its own after those before it, and one that would be denied denies the plan.
    """
    if policy.closed is not None:
        return policy.closed
    own = _judge_call(policy, subject, facts)
    if not subject.steps or own.effect is Effect.DENY:
        return own
    # INVARIANT: what is approved in plan mode runs only once somebody has left it, and is judged again then.
    then = replace(facts, mode=Mode.DEFAULT) if facts.mode is Mode.PLAN else facts
    steps: list[Verdict] = []
    for step in subject.steps:
        steps.append(_judge_call(policy, step, then))
        brought = frozenset(label for label, _ in labels_of(policy, step, then))
        then = replace(then, labels=then.labels | brought)
    effect = max((own.effect, *(step.effect for step in steps)), key=lambda effect: effect.strictness)
    because = policy.in_order(rule for verdict in (own, *steps) if verdict.effect is effect for rule in verdict.because)
    denied = [
        f"step {place} (`{subject.steps[place - 1].tool}`): {step.reason}" for place, step in enumerate(steps, 1) if step.effect is effect
    ]
    reason = "; ".join(denied) if effect is Effect.DENY else reason_of(policy, because)
    inside = (finding.model_copy(update={"step": place}) for place, step in enumerate(steps) for finding in step.findings)
    return Verdict(effect=effect, because=because, reason=reason, findings=(*own.findings, *inside))


def _judge_call(policy: Policy, subject: Subject, facts: SessionFacts) -> Verdict:
    if len(subject.resources) > _FEW:
        # An agent says how many there are, and what is remembered must not grow with that.
        return _judged(policy, subject, facts)
    key = (subject.kind, subject.tool, subject.effect, subject.resources, facts)
    verdict = policy.verdicts.get(key)
    if verdict is None:
        verdict = _judged(policy, subject, facts)
        policy.verdicts.put(key, verdict)
    return verdict


def _judged(policy: Policy, subject: Subject, facts: SessionFacts) -> Verdict:
    if not subject.resources:
        return denial(NO_RESOURCES, "the call says nothing that could be judged")
    if subject.kind is SubjectKind.TOOL_CALL and not any(_is_itself(resource, subject) for resource in subject.resources):
        return denial(UNKNOWN_TOOL, f"the tool `{subject.tool}` is not in the catalogue")
    judged = is_judged(subject)
    found = [_remembered(policy, subject.tool, judged, resource, facts) for resource in subject.resources]
    effect = max((effect for effect, _ in found), key=lambda effect: effect.strictness)
    because = policy.in_order(rule for strictness, rules in found if strictness is effect for rule in rules)
    findings = tuple(Finding(resource=place, effect=effect, because=rules) for place, (effect, rules) in enumerate(found))
    return Verdict(effect=effect, because=because, reason=reason_of(policy, because), findings=findings)


def denies_path(policy: Policy, tool: str, role: Role, path: str, facts: SessionFacts) -> bool:
    """Tell whether a tool may not touch one more path that the call did not name."""
    return policy.closed is not None or _remembered(policy, tool, True, Resource(role=role, value=path), facts)[0] is Effect.DENY


def labels_of(policy: Policy, subject: Subject, facts: SessionFacts) -> tuple[tuple[Label, int], ...]:
    """Return the labels that a call brings, each with the index of the first resource, or of what it reads besides, that sets it."""
    brought: dict[Label, int] = {}
    for place, resource in enumerate(subject.labelled_by if subject.reads else subject.resources):
        for label in _touched(policy, subject.tool, resource, facts):
            brought.setdefault(label, place)
    return tuple(brought.items())


def reason_of(policy: Policy, because: tuple[RuleId, ...]) -> str:
    """Return the deciding rules as a sentence for people."""
    cards = [card for rule in because if (card := policy.card(rule)) is not None]
    return "; ".join(f"{card.title} ({card.reason})" if card.reason else card.title for card in cards)


def _is_itself(resource: Resource, subject: Subject) -> bool:
    return resource.role is Role.USE_TOOL and resource.value == subject.tool


def _remembered(policy: Policy, tool: str, judged: bool, resource: Resource, facts: SessionFacts) -> FoundEffect:
    key = (tool, judged, resource, facts)
    found = policy.findings.get(key)
    if found is None:
        found = _find(policy, tool, judged, resource, facts)
        policy.findings.put(key, found)
    return found


def _find(policy: Policy, tool: str, judged: bool, resource: Resource, facts: SessionFacts) -> FoundEffect:
    """Judge one resource without approval, then with it; whatever cannot be judged is denied."""
    try:
        entity = entity_of(resource, facts, policy.lists)
        if resource.role in PATH_ROLES and policy.protection.stops(resource.role, resource.value, facts.workspace):
            return Effect.DENY, (PROTECTED_PATH,)
        asked = question(entity, resource.role.value, facts, policy.grammar)
        also = _also(policy, tool, entity, resource, facts)
    except ValueError:
        return _ERROR
    context = {**surroundings(facts, tool), "role": resource.role.value, "judged": judged, "approved": False}
    plain = _asked(policy, asked, also, context)
    if plain.failed:
        return _ERROR
    if plain.allowed:
        # INVARIANT: a yes never makes a rule stricter (seen to at load), so what is allowed without one needs no second look.
        return Effect.ALLOW, policy.in_order(plain.rules)
    approved = _asked(policy, asked, also, {**context, "approved": True})
    if approved.failed:
        return _ERROR
    if not approved.allowed:
        return Effect.DENY, policy.in_order(approved.rules) or (NO_RULE,)
    # Without a forbid, no permit held either. With one, Cedar does not say, so the permits are asked alone.
    permitted = plain.rules and policy.sets.permits.ask(asked, context).allowed
    return Effect.ASK, policy.in_order(plain.rules if permitted else (*plain.rules, *approved.rules))


def _also(policy: Policy, tool: str, entity: Entity, resource: Resource, facts: SessionFacts) -> tuple[_Also, ...]:
    """Return what only forbids are asked about: a command under its other names, and what is named beneath a whole tree."""
    role, workspace = resource.role.value, facts.workspace.path
    other = aliases_of_command(entity, resource, policy.forbidden_programs)
    beneath = paths_beneath(resource, tool, policy.forbidden_paths)
    names = () if other is None else ((policy.sets.naming, question(other, role, facts, policy.grammar)),)
    inner = (path_entity(path, workspace) for path in beneath)
    return (*names, *((policy.sets.forbids, question(each, role, facts, policy.grammar)) for each in inner))


def _asked(policy: Policy, asked: CedarQuestion, also: Iterable[_Also], context: dict[str, object]) -> CedarReply:
    """Return what the rules say of a resource, and the forbids that hold for what else it stands for.

    INVARIANT: what else it stands for only ever adds a forbid. What a rule permits by name is that name alone.
    """
    reply = policy.sets.judging.ask(asked, context)
    for rules, other in also:
        if reply.failed:
            return reply
        more = rules.ask(other, context)
        if more.failed:
            return more
        if more.rules:
            reply = CedarReply(allowed=False, rules=(*(() if reply.allowed else reply.rules), *more.rules))
    return reply


def _touched(policy: Policy, tool: str, resource: Resource, facts: SessionFacts) -> tuple[Label, ...]:
    key = (tool, False, resource, facts)
    found = policy.touches.get(key)
    if found is None:
        found = _touch(policy, tool, resource, facts)
        policy.touches.put(key, found)
    return found


def _touch(policy: Policy, tool: str, resource: Resource, facts: SessionFacts) -> tuple[Label, ...]:
    brought: list[str] = []
    try:
        touched = [(entity_of(resource, facts, policy.lists), resource.role)]
        read = [path for top in _read_whole(tool, resource, facts) for path in (top, *policy.labelled_paths) if is_beneath(path, top)]
        touched += ((path_entity(path, facts.workspace.path), Role.READ_PATH) for path in dict.fromkeys(read))
        for entity, role in touched:
            if entity.uid[0] in _LABELLED:
                context = {**surroundings(facts, tool), "role": role.value, "judged": False, "approved": False}
                reply = policy.sets.labelling.ask(question(entity, LABEL, facts, policy.grammar), context)
                if reply.failed:
                    return _every_label(policy)
                brought.extend(reply.rules)
    except ValueError:
        return _every_label(policy)
    return tuple(dict.fromkeys(policy.labels[rule] for rule in policy.in_order(brought)))


def _read_whole(tool: str, resource: Resource, facts: SessionFacts) -> tuple[str, ...]:
    """Return the directories of which a call may read, or carry off, whatever in there has a label."""
    workspace, role = facts.workspace.path, resource.role
    if role is Role.RUN_COMMAND:
        return (workspace,)
    if role is Role.READ_PATH and tool.startswith("git."):
        # Git shows any file of the repository, wherever in it one stands.
        return (workspace if is_beneath(resource.value, workspace) else resource.value,)
    if role is Role.READ_PATH and isinstance(resource.facts, PathFacts) and resource.facts.whole:
        # A tool server reads what it likes in a directory that it is given.
        return (resource.value,)
    # What is moved away is read elsewhere, under a name that no rule knows.
    return (resource.value,) if role is Role.DELETE_PATH else ()


def _every_label(policy: Policy) -> tuple[Label, ...]:
    return tuple(dict.fromkeys(policy.labels.values()))
