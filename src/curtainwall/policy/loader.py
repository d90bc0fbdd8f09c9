"""Loads rule files into a policy, and refuses everything that could make a rule silently not apply."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from curtainwall.model import PATH_ROLES, Broken, Digest, canonical_json
from curtainwall.policy.canonical import is_sound
from curtainwall.policy.cedar import Grammar, RuleSet, concerns, parse_rules
from curtainwall.policy.coverage import entities_in, forbids_by_name, labels_awaited, named_paths, named_programs
from curtainwall.policy.lists import Lists
from curtainwall.policy.protection import Protection
from curtainwall.policy.rulebook import Policy, RuleSets
from curtainwall.policy.rules import SCHEMA, STRUCTURAL, Rule, RuleSource, is_free_for_all, read_rule


def load(sources: Sequence[RuleSource], *, lists: Lists, protection: Protection, schema: str | None = None) -> Policy:
    """Return the policy of these files; raise `Broken`, which names the file, the rule and what to do."""
    schema = SCHEMA if schema is None else schema
    grammar = Grammar(schema)
    rules = [rule for source in sources for rule in _read(source)]
    _require_unique_ids(rules)
    for source in sources:
        for name, fault in grammar.faults(source.text):
            line = next((rule.written.line for rule in rules if (rule.card.id, rule.card.source) == (name, source.name)), 1)
            raise Broken(f"`{source.name}`, line {line}, rule `{name}` does not fit the schema: {fault}; correct it or take it away")
    judging = [rule for rule in rules if rule.label is None]
    permits = [rule for rule in judging if rule.expr["effect"] == "permit"]
    forbids = [rule for rule in judging if rule.expr["effect"] == "forbid"]
    naming = [rule for rule in judging if forbids_by_name(rule.expr)]
    narrowing_or_user = {source.name for source in sources if source.user or source.narrows}
    denying = [rule for rule in forbids if rule.card.kind == "deny" and rule.card.source in narrowing_or_user]
    labelling = {rule.card.id: rule for rule in rules if rule.label is not None}
    return Policy(
        version=_version(sources, schema, lists, protection),
        rules=(*STRUCTURAL, *(rule.card for rule in rules)),
        warnings=_warnings(rules, {source.name for source in sources if source.user}),
        lists=lists,
        protection=protection,
        grammar=grammar,
        sets=RuleSets(
            judging=RuleSet((rule.written for rule in judging), grammar),
            permits=RuleSet((rule.written for rule in permits), grammar),
            forbids=RuleSet((rule.written for rule in forbids), grammar),
            naming=RuleSet((rule.written for rule in naming), grammar),
            labelling=RuleSet((rule.written for rule in labelling.values()), grammar),
        ),
        labels={name: rule.label for name, rule in labelling.items() if rule.label is not None},
        labelled_paths=tuple(sorted({name for rule in labelling.values() for kind, name in entities_in(rule.expr) if kind == "Path"})),
        permitted_hosts=tuple(dict.fromkeys(name for rule in permits for kind, name in entities_in(rule.expr) if kind == "Host")),
        forbidden_programs=named_programs(rule.expr for rule in naming),
        forbidden_paths=named_paths(rule.expr for rule in forbids),
        denies_paths=any(concerns(rule.expr, role) for rule in denying for role in PATH_ROLES),
    )


@lru_cache(maxsize=64)
def _read(source: RuleSource) -> tuple[Rule, ...]:
    """Return the rules of one file; cached, because every project and every reload reads the same files."""
    if not is_sound(source.text) or not is_sound(source.name):
        raise Broken(f"`{source.name!a}` holds a NUL or half a character; save it as UTF-8 text")
    rules = tuple(read_rule(source, rule, number) for number, rule in enumerate(parse_rules(source.name, source.text), start=1))
    if source.narrows and not rules:
        # An editor may leave the file empty for a moment while saving, and then nothing would be narrowed.
        raise Broken(f"`{source.name}` holds no rule; take the key away if nothing is to be forbidden")
    return rules


def _require_unique_ids(rules: list[Rule]) -> None:
    for name, count in Counter(rule.card.id for rule in rules).items():
        if count > 1:
            places = " and ".join(dict.fromkeys(f"`{rule.card.source}`" for rule in rules if rule.card.id == name))
            raise Broken(f"rule `{name}` stands {count} times, in {places}; an id names one rule, rename the others")


def _warnings(rules: list[Rule], users: set[str]) -> tuple[str, ...]:
    labels = {rule.label for rule in rules}
    warnings: list[str] = []
    for rule in rules:
        where = f"`{rule.card.source}`, rule `{rule.card.id}`"
        if rule.card.source in users and is_free_for_all(rule):
            warnings.append(f"{where} allows everything that no rule forbids, and turns most asks off; say for which action and resource")
        warnings.extend(
            f"{where} waits for the label `{label}`, which no rule sets" for label in sorted(labels_awaited(rule.expr) - labels)
        )
    return tuple(warnings)


def _version(sources: Sequence[RuleSource], schema: str, lists: Lists, protection: Protection) -> Digest:
    content = canonical_json(
        {
            "sources": [[source.name, source.text, source.user] for source in sources],
            "schema": schema,
            "lists": [list(lists.hosts), list(lists.remotes), list(lists.push_remotes), list(lists.teams)],
            "protection": [
                list(protection.never),
                list(protection.readonly),
                list(protection.except_),
                # Most homes have none, and their rules keep the version that they had.
                *([list(protection.programs)] if protection.programs else []),
            ],
        }
    )
    return Digest(hashlib.sha256(content).hexdigest())
