"""Explains a verdict: the rules that decided, the facts they saw, and what would change it."""

from collections.abc import Iterator

from curtainwall.model import (
    PATH_ROLES,
    CommandFacts,
    Effect,
    Finding,
    HostFacts,
    Label,
    Mode,
    PathFacts,
    Resource,
    Role,
    RuleId,
    Subject,
    ToolFacts,
    Verdict,
    is_beneath,
    record,
    resource_of,
)
from curtainwall.policy.coverage import aliases_of_command
from curtainwall.policy.entities import SessionFacts, Unfit, entity_of
from curtainwall.policy.judgement import labels_of
from curtainwall.policy.rulebook import Policy, may_disable
from curtainwall.policy.rules import NEVER_BYPASSED, NO_RULE, POLICY_ERROR, PROJECT_EDIT, SHIPPED, RuleCard

_LIST_FOR = {
    Role.FETCH_URL: "lists.hosts",
    Role.READ_REMOTE: "lists.remotes",
    Role.WRITE_REMOTE: "lists.push-remotes",
    Role.MESSAGE_TEAM: "lists.teams",
}
_LISTABLE = frozenset(map(RuleId, ("unlisted-host", "private-address", "unlisted-remote", "private-remote", "peer-asks")))
_PLAN = frozenset(map(RuleId, ("plan-reads-only", "plan-tools")))


@record
class Explanation:
    """A verdict in words: its rules, what they saw, what a person can do, and the state of the labels; sentences without a full stop."""

    effect: Effect
    rules: tuple[RuleCard, ...]
    facts: tuple[str, ...]
    changes: tuple[str, ...]
    labels: tuple[str, ...] = ()


def explain(policy: Policy, subject: Subject, facts: SessionFacts, verdict: Verdict) -> Explanation:
    """Return why this verdict was given and what would change it."""
    deciding = [finding for finding in verdict.findings if finding.effect is verdict.effect and _fits(finding, subject)]
    seen = [_session_words(facts)]
    for finding in deciding:
        seen.extend(_resource_words(policy, resource_of(finding, subject), facts))
    changes = dict.fromkeys(_changes(policy, subject, facts, verdict, deciding))
    cards = tuple(_card_of(policy, rule) for rule in verdict.because)
    labels = tuple(_label_words(policy, subject, facts, verdict))
    return Explanation(verdict.effect, cards, tuple(dict.fromkeys(seen)), tuple(changes), labels)


def _fits(finding: Finding, subject: Subject) -> bool:
    """Tell whether a finding refers to a resource that the subject has."""
    part = subject if finding.step is None else subject.steps[finding.step] if finding.step < len(subject.steps) else None
    return part is not None and finding.resource < len(part.resources)


def _label_words(policy: Policy, subject: Subject, facts: SessionFacts, verdict: Verdict) -> Iterator[str]:
    """Yield the state of every label and what sets it; a call that nobody can ever permit sets none."""
    is_denied = verdict.effect is Effect.DENY
    is_final = is_denied and any(_is_final(policy, rule) for rule in verdict.because)
    new_labels = {} if is_final else dict(labels_of(policy, subject, facts))
    sets = "this call is denied, and would set it" if is_denied else "once permitted, this call sets it"
    rules_by_label: dict[str, list[str]] = {label: [] for label in sorted(facts.labels)}
    for rule, label in sorted(policy.labels.items()):
        rules_by_label.setdefault(label, []).append(f"`{rule}`")
    for label, rules in rules_by_label.items():
        set_by = f"set by {' or '.join(rules)}" if rules else "which no rule sets"
        if label in facts.labels:
            yield f"`{label}` is in force ({set_by})"
        elif (place := new_labels.get(Label(label))) is not None:
            resource = subject.labelled_by[place]
            yield f"`{label}` is not in force; {sets}, by `{resource.role}` on `{resource.value}` ({set_by})"
        else:
            yield f"`{label}` is not in force ({set_by})"


def _card_of(policy: Policy, rule: RuleId) -> RuleCard:
    return policy.card(rule) or RuleCard(rule, str(rule), "it stands in no rule file that is loaded now", "structural", "elsewhere", "")


def _session_words(facts: SessionFacts) -> str:
    place = "its own workspace" if facts.workspace.own else "the project"
    labels = ", ".join(f"`{label}`" for label in sorted(facts.labels)) or "none"
    return f"the session works in {place} `{facts.workspace.path}`, in mode `{facts.mode}`; labels: {labels}"


def _resource_words(policy: Policy, resource: Resource, facts: SessionFacts) -> Iterator[str]:
    what = f"`{resource.role}` on `{resource.value}`"
    try:
        entity = entity_of(resource, facts, policy.lists)
    except Unfit:
        yield f"{what}: not canonical, or without the facts that its role needs"
        return
    if resource.role in PATH_ROLES:
        place = "inside" if is_beneath(resource.value, facts.workspace.path) else "outside"
        yield f"{what}: {place} the workspace"
        if entity.attrs["runs_later"]:
            yield f"`{resource.value}` may run later by itself"
        if policy.protection.stops(resource.role, resource.value, facts.workspace):
            yield f"`{resource.value}` is, lies in, or contains a protected path"
        return
    match resource.facts:
        case HostFacts(host=host, port=port, scope=scope):
            yield f"{what}: host `{host}`, port {port}, {scope}"
        case CommandFacts(program=program, parsed=parsed):
            yield f"{what}: " + (f"runs `{program}`" if parsed else "cannot be parsed")
            other = aliases_of_command(entity, resource, policy.forbidden_programs)
            names = [name for kind, name in other.parents if (kind, name) not in entity.parents] if other is not None else []
            if names:
                yield f"{what}: rules that forbid {' or '.join(f'`{name}`' for name in names)} hold for it"
        case ToolFacts(effect=effect):
            yield f"{what}: its effect is at most `{effect}`"
        case PathFacts() | None:
            yield what
    if resource.role in _LIST_FOR:
        lists = [name for kind, name in entity.parents if kind == "List"]
        yield f"`{resource.value}` is on " + (" and ".join(f"`lists.{name}`" for name in lists) or "no list")


def _changes(policy: Policy, subject: Subject, facts: SessionFacts, verdict: Verdict, deciding: list[Finding]) -> Iterator[str]:
    match verdict.effect:
        case Effect.ALLOW:
            yield "nothing needs to change: it is allowed"
        case Effect.ASK:
            yield from _answers(policy, subject, verdict, deciding)
        case Effect.DENY:
            yield from _ways_to_allow(policy, facts, verdict)


def _answers(policy: Policy, subject: Subject, verdict: Verdict, deciding: list[Finding]) -> Iterator[str]:
    yield "an operator approves it: `curtainwall approve ID --for once|session|project` (in a session `/approve ID`)"
    pairs = [(resource_of(finding, subject), finding) for finding in deciding]
    for resource, finding in pairs:
        rules = ", ".join(f"`{rule}`" for rule in finding.because)
        yield f"a grant for `{resource.role}` on `{resource.value}` that was given for {rules}"
        if resource.role in _LIST_FOR and _LISTABLE & set(finding.because):
            yield f"`{_list_entry(resource)}` in config `{_LIST_FOR[resource.role]}`"
    if pairs and all(set(finding.because) == {PROJECT_EDIT} for _, finding in pairs):
        yield f"mode `{Mode.ACCEPT_EDITS}`"
    if pairs and all(resource.role not in NEVER_BYPASSED for resource, _ in pairs):
        yield f"mode `{Mode.BYPASS}`"
    if verdict.because and all(may_disable(policy, rule) for rule in verdict.because):
        yield "an operator switches off every rule that asks, in the session: " + ", ".join(
            f"`/disable {rule}`" for rule in verdict.because
        )


def _ways_to_allow(policy: Policy, facts: SessionFacts, verdict: Verdict) -> Iterator[str]:
    for rule in verdict.because:
        card = _card_of(policy, rule)
        if rule in _PLAN:
            yield f"leaving mode `{facts.mode}`: `/mode {Mode.DEFAULT}` in the session (here `--mode {Mode.DEFAULT}`)"
        elif rule == NO_RULE:
            yield "a rule in a policy file that permits it, or permits it `when { context.approved }`"
        elif rule == POLICY_ERROR:
            yield "a rule or a fact could not be evaluated: `curtainwall policy rules` and the log say more"
        elif _is_final(policy, rule):
            yield f"nothing can: `{rule}` holds for every session and every answer"
        else:
            yield f"the rule `{rule}` in `{card.source}`, which its author can change"


def _is_final(policy: Policy, rule: RuleId) -> bool:
    """Tell whether nothing can undo a rule's denial: no answer, no mode, and no rule of the user."""
    card = _card_of(policy, rule)
    is_of_user = card.kind == "deny" and card.source not in SHIPPED
    return not is_of_user and rule not in _PLAN and rule not in (NO_RULE, POLICY_ERROR)


def _list_entry(resource: Resource) -> str:
    return resource.facts.host if isinstance(resource.facts, HostFacts) and resource.role is Role.FETCH_URL else resource.value
