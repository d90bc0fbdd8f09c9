"""A policy that has loaded: its rules ready to be asked, the lists and protected paths beside them, and their one version."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from curtainwall.model import Digest, Effect, Label, Resource, RuleId, SubjectKind, ToolEffect, Verdict, denial
from curtainwall.policy.cedar import Grammar, RuleSet
from curtainwall.policy.entities import SessionFacts
from curtainwall.policy.lists import Lists
from curtainwall.policy.protection import Protection
from curtainwall.policy.rules import RuleCard

K = TypeVar("K")
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Two generations: when the young one is full it becomes the old one, and what nobody asked for since is forgotten."""

    __slots__ = ("_limit", "_old", "_young")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return what is remembered for a key, or None."""
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: K, value: V) -> None:
        """Remember a value; at most twice the limit is held."""
        if len(self._young) >= self._limit:
            self._old, self._young = self._young, {}
        self._young[key] = value

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())


_REMEMBERED = 4096

FoundEffect = tuple[Effect, tuple[RuleId, ...]]
"""What was found for one resource, and because of which rules."""

Key = tuple[str, bool, Resource, SessionFacts]
"""All that a finding depends on besides the policy: the tool, whether its effect is judged elsewhere, the resource, the session."""

CallKey = tuple[SubjectKind, str, ToolEffect, tuple[Resource, ...], SessionFacts]
"""All that the verdict on a call depends on besides the policy: what is asked of whom, and the session; never what the arguments say."""


@dataclass(frozen=True, slots=True)
class RuleSets:
    """The same rules in sets: all that judge, the permits and the forbids among them, the forbids that name commands, and label rules."""

    judging: RuleSet
    permits: RuleSet
    forbids: RuleSet
    naming: RuleSet
    labelling: RuleSet


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """Rules in force. It never changes; what it remembers are answers that it would give again."""

    version: Digest
    rules: tuple[RuleCard, ...]
    warnings: tuple[str, ...]
    lists: Lists
    protection: Protection
    grammar: Grammar
    sets: RuleSets
    labels: Mapping[str, Label]
    labelled_paths: tuple[str, ...]
    permitted_hosts: tuple[str, ...] = ()
    """Hosts that rules which permit something name; whether one is free is another question."""
    forbidden_programs: frozenset[str] = frozenset()
    """Programs that forbids name; a command that cannot be parsed is looked through for them."""
    forbidden_paths: tuple[str, ...] = ()
    """Paths that forbids name, or one that matches; a directory that is moved or deleted is looked through for them."""
    denies_paths: bool = False
    """Whether a rule of the user's denies to read, write or delete something."""
    closed: Verdict | None = None
    """What every subject gets, whatever the rules say; nothing where they are asked."""
    findings: Cache[Key, FoundEffect] = field(default_factory=lambda: Cache[Key, FoundEffect](_REMEMBERED), repr=False)
    verdicts: Cache[CallKey, Verdict] = field(default_factory=lambda: Cache[CallKey, Verdict](_REMEMBERED), repr=False)
    touches: Cache[Key, tuple[Label, ...]] = field(default_factory=lambda: Cache[Key, tuple[Label, ...]](_REMEMBERED), repr=False)
    _places: dict[str, int] = field(init=False, repr=False, default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self._places.update((card.id, place) for place, card in enumerate(self.rules))

    def card(self, rule: RuleId) -> RuleCard | None:
        """Return the card of a rule, or None for one that is not among them, such as a hook's."""
        place = self._places.get(rule)
        return None if place is None else self.rules[place]

    def in_order(self, rules: Iterable[str]) -> tuple[RuleId, ...]:
        """Return rule ids once each, in the order of the rule files."""
        return tuple(RuleId(rule) for rule in sorted(set(rules), key=lambda rule: self._places[rule]))


def closed(policy: Policy, rule: RuleId, reason: str) -> Policy:
    """Return a policy that denies everything, because of a structural rule."""
    return replace(policy, closed=denial(rule, reason))


def may_disable(policy: Policy, rule: RuleId) -> bool:
    """Tell whether a session may switch a rule off: only one that makes something ask, never one that denies."""
    card = policy.card(rule)
    return card is not None and card.kind == "ask"
