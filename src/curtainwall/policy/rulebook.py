"""A loaded policy: its rules ready to be asked, the lists and protected paths, and the version of them all."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from curtainwall.model import Digest, Effect, Label, Resource, RuleId, SubjectKind, ToolEffect, Verdict, denial, record
from curtainwall.policy.cedar import Grammar, RuleSet
from curtainwall.policy.entities import SessionFacts
from curtainwall.policy.lists import Lists
from curtainwall.policy.protection import Protection
from curtainwall.policy.rules import RuleCard

K = TypeVar("K")
V = TypeVar("V")


class Cache(Generic[K, V]):
    """A cache of two generations: when the young one is full it becomes the old one, and entries unused since then are dropped."""

    __slots__ = ("_limit", "_old", "_young")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return the cached value of a key, or None."""
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Cache a value; at most twice the limit is kept."""
        if len(self._young) >= self._limit:
            self._old, self._young = self._young, {}
        self._young[key] = value

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())


_CACHE_SIZE = 4096

FoundEffect = tuple[Effect, tuple[RuleId, ...]]
"""The effect for one resource, and the rules that caused it."""

Key = tuple[str, bool, Resource, SessionFacts]
"""Everything that a finding depends on besides the policy: the tool, whether its effect is judged elsewhere, the resource, the session."""

CallKey = tuple[SubjectKind, str, ToolEffect, tuple[Resource, ...], SessionFacts]
"""Everything that the verdict on a call depends on besides the policy: the subject and the session, but never the arguments."""


@record
class RuleSets:
    """The same rules in sets: all that judge, the permits and the forbids among them, the forbids that name commands, and label rules."""

    judging: RuleSet
    permits: RuleSet
    forbids: RuleSet
    naming: RuleSet
    labelling: RuleSet


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """The rules in force. It is immutable; its caches only hold answers that it would give again."""

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
    """Hosts that permits name; whether a host is actually allowed is another question."""
    forbidden_programs: frozenset[str] = frozenset()
    """Programs that forbids name; we search a command that cannot be parsed for them."""
    forbidden_paths: tuple[str, ...] = ()
    """Paths that forbids name or match; we check whether a directory that is moved or deleted contains one."""
    denies_paths: bool = False
    """Whether a rule of the user denies reading, writing or deleting a path."""
    closed: Verdict | None = None
    """The verdict for every subject regardless of the rules; None if the rules decide."""
    findings: Cache[Key, FoundEffect] = field(default_factory=lambda: Cache[Key, FoundEffect](_CACHE_SIZE), repr=False)
    verdicts: Cache[CallKey, Verdict] = field(default_factory=lambda: Cache[CallKey, Verdict](_CACHE_SIZE), repr=False)
    touches: Cache[Key, tuple[Label, ...]] = field(default_factory=lambda: Cache[Key, tuple[Label, ...]](_CACHE_SIZE), repr=False)
    _places: dict[str, int] = field(init=False, repr=False, default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self._places.update((card.id, index) for index, card in enumerate(self.rules))

    def card(self, rule: RuleId) -> RuleCard | None:
        """Return the card of a rule, or None for an id that is not a rule here, such as a hook's."""
        index = self._places.get(rule)
        return None if index is None else self.rules[index]

    def in_order(self, rules: Iterable[str]) -> tuple[RuleId, ...]:
        """Return rule ids once each, in the order of the rule files."""
        return tuple(RuleId(rule) for rule in sorted(set(rules), key=lambda rule: self._places[rule]))


def closed(policy: Policy, rule: RuleId, reason: str) -> Policy:
    """Return a policy that denies everything because of a structural rule."""
    return replace(policy, closed=denial(rule, reason))


def may_disable(policy: Policy, rule: RuleId) -> bool:
    """Tell whether a session may switch a rule off: only one that asks, never one that denies."""
    card = policy.card(rule)
    return card is not None and card.kind == "ask"
