"""Rules in, verdict out. No I/O, no clock; the caches change no verdict."""

from collections.abc import Iterable, Sequence
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
    strictest,
)
from curtainwall.policy.cedar import LABEL, CedarQuestion, CedarReply, RuleSet
from curtainwall.policy.coverage import aliases_of_command, paths_beneath
from curtainwall.policy.entities import Entity, SessionFacts, entity_of, is_judged, path_entity, question, surroundings
from curtainwall.policy.rulebook import FoundEffect, Policy
from curtainwall.policy.rules import NO_RESOURCES, NO_RULE, POLICY_ERROR, PROTECTED_PATH, UNKNOWN_TOOL

_LABELLED_TYPES = ("Path", "Host", "Remote", "Tool", "Team")
_MAX_CACHED_RESOURCES = 8
_Further = tuple[RuleSet, CedarQuestion]
_ERROR: FoundEffect = (Effect.DENY, (POLICY_ERROR,))


def judge(policy: Policy, subject: Subject, facts: SessionFacts) -> Verdict:
    """Return the strictest verdict over the subject's resources; deny if it has none that a rule knows.

    Each step of a plan is judged as if it ran after the steps before it, and one denied step denies the plan.
    """
    if policy.closed is not None:
        return policy.closed
    own_verdict = _judge_call(policy, subject, facts)
    if not subject.steps or own_verdict.effect is Effect.DENY:
        return own_verdict
    # INVARIANT: what is approved in plan mode runs only after someone has left that mode, and is judged again then.
    step_facts = replace(facts, mode=Mode.DEFAULT) if facts.mode is Mode.PLAN else facts
    steps: list[Verdict] = []
    for step in subject.steps:
        steps.append(_judge_call(policy, step, step_facts))
        new_labels = frozenset(label for label, _ in labels_of(policy, step, step_facts))
        step_facts = replace(step_facts, labels=step_facts.labels | new_labels)
    effect = strictest((own_verdict.effect, *(step.effect for step in steps)))
    because = policy.in_order(rule for verdict in (own_verdict, *steps) if verdict.effect is effect for rule in verdict.because)
    denied = [
        f"step {index} (`{subject.steps[index - 1].tool}`): {step.reason}" for index, step in enumerate(steps, 1) if step.effect is effect
    ]
    reason = "; ".join(denied) if effect is Effect.DENY else reason_of(policy, because)
    step_findings = (finding.model_copy(update={"step": index}) for index, step in enumerate(steps) for finding in step.findings)
    return Verdict(effect=effect, because=because, reason=reason, findings=(*own_verdict.findings, *step_findings))


def _judge_call(policy: Policy, subject: Subject, facts: SessionFacts) -> Verdict:
    if len(subject.resources) > _MAX_CACHED_RESOURCES:
        # The agent chooses how many there are, and the cache must not grow with that.
        return _judge_resources(policy, subject, facts)
    key = (subject.kind, subject.tool, subject.effect, subject.resources, facts)
    verdict = policy.verdicts.get(key)
    if verdict is None:
        verdict = _judge_resources(policy, subject, facts)
        policy.verdicts.put(key, verdict)
    return verdict


def _judge_resources(policy: Policy, subject: Subject, facts: SessionFacts) -> Verdict:
    if not subject.resources:
        return denial(NO_RESOURCES, "the call says nothing that could be judged")
    if subject.kind is SubjectKind.TOOL_CALL and not any(_is_tool_of(resource, subject) for resource in subject.resources):
        return denial(UNKNOWN_TOOL, f"the tool `{subject.tool}` is not in the catalogue")
    judged = is_judged(subject)
    effects = [_cached_effect(policy, subject.tool, judged, resource, facts) for resource in subject.resources]
    effect = strictest(effect for effect, _ in effects)
    because = policy.in_order(rule for each, rules in effects if each is effect for rule in rules)
    findings = tuple(Finding(resource=index, effect=effect, because=rules) for index, (effect, rules) in enumerate(effects))
    return Verdict(effect=effect, because=because, reason=reason_of(policy, because), findings=findings)


def denies_path(policy: Policy, tool: str, role: Role, path: str, facts: SessionFacts) -> bool:
    """Tell whether a tool may not touch a further path that the call did not name."""
    return policy.closed is not None or _cached_effect(policy, tool, True, Resource(role=role, value=path), facts)[0] is Effect.DENY


def denied_among(policy: Policy, tool: str, resources: Sequence[Resource], facts: SessionFacts) -> tuple[Resource, ...]:
    """Return those resources of a possible call that would be denied, whatever the others are."""
    if policy.closed is not None:
        return tuple(resources)
    return tuple(each for each in resources if _cached_effect(policy, tool, True, each, facts)[0] is Effect.DENY)


def labels_of(policy: Policy, subject: Subject, facts: SessionFacts) -> tuple[tuple[Label, int], ...]:
    """Return the labels that a call sets, each with the index of the first resource, or of the first extra read, that sets it."""
    labels: dict[Label, int] = {}
    for index, resource in enumerate(subject.labelled_by if subject.reads else subject.resources):
        for label in _cached_labels(policy, subject.tool, resource, facts):
            labels.setdefault(label, index)
    return tuple(labels.items())


def reason_of(policy: Policy, because: tuple[RuleId, ...]) -> str:
    """Return the deciding rules as a sentence for people."""
    cards = [card for rule in because if (card := policy.card(rule)) is not None]
    return "; ".join(f"{card.title} ({card.reason})" if card.reason else card.title for card in cards)


def _is_tool_of(resource: Resource, subject: Subject) -> bool:
    return resource.role is Role.USE_TOOL and resource.value == subject.tool


def _cached_effect(policy: Policy, tool: str, judged: bool, resource: Resource, facts: SessionFacts) -> FoundEffect:
    key = (tool, judged, resource, facts)
    effect = policy.findings.get(key)
    if effect is None:
        effect = _effect_of(policy, tool, judged, resource, facts)
        policy.findings.put(key, effect)
    return effect


def _effect_of(policy: Policy, tool: str, judged: bool, resource: Resource, facts: SessionFacts) -> FoundEffect:
    """Judge one resource without approval, then with it; deny what cannot be judged."""
    try:
        entity = entity_of(resource, facts, policy.lists)
        if resource.role in PATH_ROLES and policy.protection.stops(resource.role, resource.value, facts.workspace):
            return Effect.DENY, (PROTECTED_PATH,)
        asking = question(entity, resource.role.value, facts, policy.grammar)
        further = _further_questions(policy, tool, entity, resource, facts)
    except ValueError:
        return _ERROR
    context = {**surroundings(facts, tool), "role": resource.role.value, "judged": judged, "approved": False}
    unapproved = _ask(policy, asking, further, context)
    if unapproved.failed:
        return _ERROR
    if unapproved.allowed:
        # INVARIANT: approval never makes a rule stricter (checked at load), so what is allowed without it is allowed with it.
        return Effect.ALLOW, policy.in_order(unapproved.rules)
    approved = _ask(policy, asking, further, {**context, "approved": True})
    if approved.failed:
        return _ERROR
    if not approved.allowed:
        return Effect.DENY, policy.in_order(approved.rules) or (NO_RULE,)
    # If no forbid applied, no permit did either. If one did, Cedar does not say, so ask the permits alone.
    permitted = unapproved.rules and policy.sets.permits.ask(asking, context).allowed
    return Effect.ASK, policy.in_order(unapproved.rules if permitted else (*unapproved.rules, *approved.rules))


def _further_questions(policy: Policy, tool: str, entity: Entity, resource: Resource, facts: SessionFacts) -> tuple[_Further, ...]:
    """Return further questions for forbids only: a command under its other names, and the named paths beneath a whole tree."""
    role, workspace = resource.role.value, facts.workspace.path
    alias = aliases_of_command(entity, resource, policy.forbidden_programs)
    beneath = paths_beneath(resource, tool, policy.forbidden_paths)
    alias_questions = () if alias is None else ((policy.sets.naming, question(alias, role, facts, policy.grammar)),)
    inner_entities = (path_entity(path, workspace) for path in beneath)
    return (
        *alias_questions,
        *((policy.sets.forbids, question(inner_entity, role, facts, policy.grammar)) for inner_entity in inner_entities),
    )


def _ask(policy: Policy, asking: CedarQuestion, further: Iterable[_Further], context: dict[str, object]) -> CedarReply:
    """Ask the rules about a resource, and the forbids about its further questions.

    INVARIANT: a further question only ever adds a forbid. A rule that permits by name permits only that name.
    """
    reply = policy.sets.judging.ask(asking, context)
    for rules, further_question in further:
        if reply.failed:
            return reply
        extra = rules.ask(further_question, context)
        if extra.failed:
            return extra
        if extra.rules:
            reply = CedarReply(allowed=False, rules=(*(() if reply.allowed else reply.rules), *extra.rules))
    return reply


def _cached_labels(policy: Policy, tool: str, resource: Resource, facts: SessionFacts) -> tuple[Label, ...]:
    key = (tool, False, resource, facts)
    labels = policy.touches.get(key)
    if labels is None:
        labels = _labels_from(policy, tool, resource, facts)
        policy.touches.put(key, labels)
    return labels


def _labels_from(policy: Policy, tool: str, resource: Resource, facts: SessionFacts) -> tuple[Label, ...]:
    rules: list[str] = []
    try:
        entities = [(entity_of(resource, facts, policy.lists), resource.role)]
        read_paths = [path for top in _read_whole(tool, resource, facts) for path in (top, *policy.labelled_paths) if is_beneath(path, top)]
        entities += ((path_entity(path, facts.workspace.path), Role.READ_PATH) for path in dict.fromkeys(read_paths))
        for entity, role in entities:
            if entity.uid[0] in _LABELLED_TYPES:
                context = {**surroundings(facts, tool), "role": role.value, "judged": False, "approved": False}
                reply = policy.sets.labelling.ask(question(entity, LABEL, facts, policy.grammar), context)
                if reply.failed:
                    return _every_label(policy)
                rules.extend(reply.rules)
    except ValueError:
        return _every_label(policy)
    return tuple(dict.fromkeys(policy.labels[rule] for rule in policy.in_order(rules)))


def _read_whole(tool: str, resource: Resource, facts: SessionFacts) -> tuple[str, ...]:
    """Return the directories of which a call may read, or carry off, anything that has a label."""
    workspace, role = facts.workspace.path, resource.role
    if role is Role.RUN_COMMAND:
        return (workspace,)
    if role is Role.READ_PATH and tool.startswith("git."):
        # Git shows any file of the repository, from any directory in it.
        return (workspace if is_beneath(resource.value, workspace) else resource.value,)
    if role is Role.READ_PATH and isinstance(resource.facts, PathFacts) and resource.facts.whole:
        # A tool server may read anything in a directory that it is given.
        return (resource.value,)
    # Moved files can be read elsewhere, under names that no rule knows.
    return (resource.value,) if role is Role.DELETE_PATH else ()


def _every_label(policy: Policy) -> tuple[Label, ...]:
    return tuple(dict.fromkeys(policy.labels.values()))
