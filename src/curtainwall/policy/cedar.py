"""The one door to Cedar: parsed rules in, answers out, and every way of failing is an answer too."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import cedarpy

from curtainwall.model import Broken, Role

LABEL = "label"
"""The action that label rules are about."""

# Strings and comments whole, so that nothing in them counts; then what ends, nests or joins.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n\r]*|[;()\[\]{}]|&&|\|\||\bif\b|[-+*.!]', re.DOTALL)
_OPENING = ("(", "[", "{")
_CLOSING = (")", "]", "}")
_DEEPEST = 64
_LONGEST = 600
_MOST_LEVELS = 900
_ACTIONS = frozenset({LABEL, *(role.value for role in Role)})

Expr = Mapping[str, object]
"""A rule or a part of one, as Cedar writes it in JSON."""

Uid = tuple[str, str]
"""Type and id of an entity."""


@dataclass(frozen=True, slots=True)
class WrittenRule:
    """One rule as it stands in its file, comments included, the line where it begins, and as Cedar reads it."""

    text: str
    expr: Expr
    line: int = 1


@dataclass(frozen=True, slots=True)
class CedarQuestion:
    """Who wants to do what to what, among which entities."""

    principal: Uid
    action: str
    resource: Uid
    entities: cedarpy.Entities


@dataclass(frozen=True, slots=True)
class CedarReply:
    """What Cedar said: whether it allowed, the rules that decided, and whether anything went wrong on the way."""

    allowed: bool
    rules: tuple[str, ...]
    failed: bool = False


FAILED = CedarReply(allowed=False, rules=(), failed=True)


class Grammar:
    """The schema, parsed once. Without one nothing is judged."""

    __slots__ = ("schema",)

    def __init__(self, text: str) -> None:
        try:
            self.schema = cedarpy.Schema.from_str(text)
        except ValueError as error:
            raise Broken(f"the policy schema does not load: {error}; restore the one that ships") from None

    def entities(self, text: str) -> cedarpy.Entities:
        """Return entities that fit the schema, from JSON; raise ValueError for others."""
        return cedarpy.Entities.from_json_str(text, self.schema)  # pyright: ignore[reportUnknownMemberType] - cedarpy leaves dicts open

    def faults(self, text: str) -> Iterable[tuple[str, str]]:
        """Return what is wrong with the rules in a file, as pairs of a rule's `@id` and the fault."""
        result = cedarpy.validate_policies(text, self.schema)  # pyright: ignore[reportUnknownMemberType] - cedarpy leaves dicts open
        names = cast("dict[str, str]", result.id_annotations_by_policy_id)
        for error in result.errors:
            _, _, words = error.error.partition("`, ")
            yield names.get(error.policy_id, error.policy_id), words or error.error


class RuleSet:
    """Rules that are parsed once and asked often, for each action those alone that could hold for it."""

    __slots__ = ("_grammar", "_policies", "_rules")

    def __init__(self, rules: Iterable[WrittenRule], grammar: Grammar) -> None:
        self._rules = tuple(rules)
        self._grammar = grammar
        self._policies: dict[str, cedarpy.PolicySet] = {}

    def ask(self, question: CedarQuestion, context: Mapping[str, object]) -> CedarReply:
        """Return what the rules say; an error of any kind is a failure, never an allow."""
        request = {
            "principal": {"type": question.principal[0], "id": question.principal[1]},
            "action": {"type": "Action", "id": question.action},
            "resource": {"type": question.resource[0], "id": question.resource[1]},
            "context": json.dumps(context),
        }
        policies = self._policies.get(question.action) or self._for(question.action)
        try:
            result = cedarpy.is_authorized(request, policies, question.entities, self._grammar.schema)  # pyright: ignore[reportUnknownMemberType] - as above
        except (ValueError, TypeError):
            return FAILED
        # INVARIANT: Cedar skips a rule that errs, and a skipped forbid does not forbid. So one error spoils the whole answer.
        if result.diagnostics.errors or result.decision is cedarpy.Decision.NoDecision:
            return FAILED
        names = cast("dict[str, str]", result.diagnostics.id_annotations_by_reason)
        return CedarReply(allowed=result.allowed, rules=tuple(names.values()))

    def _for(self, action: str) -> cedarpy.PolicySet:
        """Parse the rules that could hold for an action, when it first comes up."""
        rules = "\n".join(rule.text for rule in self._rules if concerns(rule.expr, action))
        return self._policies.setdefault(action, cedarpy.PolicySet.from_str(rules))


def parse_rules(source: str, text: str) -> tuple[WrittenRule, ...]:
    """Return the rules of a file, in the order they stand there."""
    if _is_too_deep(text):
        raise Broken(f"`{source}` holds a rule that is nested too deeply or goes on too long; make several of it")
    try:
        whole = cast("dict[str, dict[str, Expr]]", json.loads(cedarpy.policies_to_json_str(text)))
    except RecursionError:
        raise Broken(f"`{source}` holds a rule that is nested too deeply; make several of it") from None
    except ValueError as error:
        raise Broken(f"`{source}`, line {_first_bad(text)}, is no Cedar: {error}; correct the file or take it away") from None
    if _levels_of(whole) > _MOST_LEVELS:
        raise Broken(f"`{source}` holds a rule that is nested too deeply; make several of it")
    if whole["templates"]:
        raise Broken(f"`{source}` holds a template (`?principal` or `?resource`), which would never apply; name what you mean")
    # Cedar numbers the rules of a file and hands them back unsorted.
    numbered = sorted(whole["staticPolicies"].items(), key=lambda item: int(item[0].removeprefix("policy")))
    return tuple(WrittenRule(piece, expr, line) for (piece, line), (_, expr) in zip(_pieces(text), numbered, strict=True))


def _first_bad(text: str) -> int:
    """Return the line of the first rule that Cedar cannot read; its own words do not tell."""
    end = 0
    for piece, line in _pieces(text):
        end = text.index(piece, end) + len(piece)
        try:
            cedarpy.policies_to_json_str(piece)
        except ValueError:
            return line
    rest = text[end:]
    return text.count("\n", 0, end + len(rest) - len(rest.lstrip())) + 1


def _is_too_deep(text: str) -> bool:
    """Tell whether Cedar's parser, which recurses without a limit of its own, could run out of stack."""
    levels, total = [0], 0
    for found in _TOKEN.finditer(text):
        piece = found[0]
        if piece == ";":
            levels, total = [0], 0
        elif piece in _CLOSING:
            total -= levels.pop() if len(levels) > 1 else 0
        elif not piece.startswith(('"', "//")):
            levels[-1] += 1
            total += 1
            if piece in _OPENING:
                levels.append(0)
        if len(levels) > _DEEPEST or total > _LONGEST:
            return True
    return False


def _levels_of(value: object) -> int:
    """Count how deep a parsed rule is, without going as deep; how deep one may go differs between versions of Python."""
    level: list[object] = [value]
    many = 0
    while level:
        many += 1
        level = [inner for held in level for inner in _held_by(held)]
    return many


def _held_by(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _pieces(text: str) -> Iterable[tuple[str, int]]:
    """Yield each rule's own text and its line: a semicolon outside of strings and comments ends one, and stands nowhere else."""
    start, line = 0, 1
    for found in _TOKEN.finditer(text):
        if found[0] == ";":
            piece = text[start : found.end()]
            first = len(piece) - len(piece.lstrip())
            yield piece.strip(), line + piece.count("\n", 0, first)
            line += piece.count("\n")
            start = found.end()


def concerns(rule: Expr, action: str) -> bool:
    """Tell whether a rule's head leaves room for an action; a group of actions is taken to hold every action."""
    head = cast("dict[str, object]", rule["action"])
    if head["op"] == "All":
        return True
    named = [head["entity"]] if "entity" in head else cast("list[object]", head["entities"])
    ids = {cast("dict[str, str]", entity)["id"] for entity in named}
    return action in ids or any(group not in _ACTIONS for group in ids)
