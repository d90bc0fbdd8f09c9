"""The only module that calls Cedar: it parses rules and answers questions, and every failure is an answer too."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import cast

import cedarpy

from curtainwall.model import Broken, Role, record

LABEL = "label"
"""The action that label rules are about."""

# Whole strings and comments, so that nothing in them counts; then the tokens that end, nest or join.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n\r]*|[;()\[\]{}]|&&|\|\||\bif\b|[-+*.!]', re.DOTALL)
_OPENING = ("(", "[", "{")
_CLOSING = (")", "]", "}")
_MAX_NESTING = 64
_MAX_TOKENS = 600
_MAX_DEPTH = 900
_ACTIONS = frozenset({LABEL, *(role.value for role in Role)})

Expr = Mapping[str, object]
"""A rule or a part of one, as Cedar writes it in JSON."""

Uid = tuple[str, str]
"""Type and id of an entity."""


@record
class WrittenRule:
    """One rule: its text in the file with comments, the expression that Cedar reads, and the line where it begins."""

    text: str
    expr: Expr
    line: int = 1


@record
class CedarQuestion:
    """A request: principal, action and resource, and the entities around them."""

    principal: Uid
    action: str
    resource: Uid
    entities: cedarpy.Entities


@record
class CedarReply:
    """Cedar's answer: whether it allowed the request, the rules that decided, and whether anything failed."""

    allowed: bool
    rules: tuple[str, ...]
    failed: bool = False


FAILED = CedarReply(allowed=False, rules=(), failed=True)


class Grammar:
    """The parsed schema, without which nothing can be judged."""

    __slots__ = ("schema",)

    def __init__(self, text: str) -> None:
        try:
            self.schema = cedarpy.Schema.from_str(text)
        except ValueError as error:
            raise Broken(f"the policy schema does not load: {error}; restore the one that ships") from None

    def entities(self, text: str) -> cedarpy.Entities:
        """Parse entities from JSON; raise ValueError if they do not fit the schema."""
        return cedarpy.Entities.from_json_str(text, self.schema)  # pyright: ignore[reportUnknownMemberType] - cedarpy leaves dicts open

    def faults(self, text: str) -> Iterable[tuple[str, str]]:
        """Return what is wrong with the rules in a file, as pairs of a rule's `@id` and the fault."""
        result = cedarpy.validate_policies(text, self.schema)  # pyright: ignore[reportUnknownMemberType] - cedarpy leaves dicts open
        names = cast("dict[str, str]", result.id_annotations_by_policy_id)
        for error in result.errors:
            _, _, words = error.error.partition("`, ")
            yield names.get(error.policy_id, error.policy_id), words or error.error


class RuleSet:
    """Rules that are parsed once per action, and only those that could apply to it."""

    __slots__ = ("_grammar", "_policies", "_rules")

    def __init__(self, rules: Iterable[WrittenRule], grammar: Grammar) -> None:
        self._rules = tuple(rules)
        self._grammar = grammar
        self._policies: dict[str, cedarpy.PolicySet] = {}

    def ask(self, question: CedarQuestion, context: Mapping[str, object]) -> CedarReply:
        """Return the answer of the rules; an error of any kind is a failure, never an allow."""
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
        # INVARIANT: Cedar skips a rule with an error, and a skipped forbid does not forbid. So one error makes the whole answer a failure.
        if result.diagnostics.errors or result.decision is cedarpy.Decision.NoDecision:
            return FAILED
        names = cast("dict[str, str]", result.diagnostics.id_annotations_by_reason)
        return CedarReply(allowed=result.allowed, rules=tuple(names.values()))

    def _for(self, action: str) -> cedarpy.PolicySet:
        """Parse the rules that could apply to an action, when it is first asked about."""
        rules = "\n".join(rule.text for rule in self._rules if concerns(rule.expr, action))
        return self._policies.setdefault(action, cedarpy.PolicySet.from_str(rules))


def parse_rules(source: str, text: str) -> tuple[WrittenRule, ...]:
    """Return the rules of a file in their order."""
    if _is_too_deep(text):
        raise Broken(f"`{source}` holds a rule that is nested too deeply or goes on too long; make several of it")
    try:
        parsed = cast("dict[str, dict[str, Expr]]", json.loads(cedarpy.policies_to_json_str(text)))
    except RecursionError:
        raise Broken(f"`{source}` holds a rule that is nested too deeply; make several of it") from None
    except ValueError as error:
        raise Broken(f"`{source}`, line {_first_bad_line(text)}, is no Cedar: {error}; correct the file or take it away") from None
    if _depth_of(parsed) > _MAX_DEPTH:
        raise Broken(f"`{source}` holds a rule that is nested too deeply; make several of it")
    if parsed["templates"]:
        raise Broken(f"`{source}` holds a template (`?principal` or `?resource`), which would never apply; name what you mean")
    # Cedar numbers the rules of a file and returns them unsorted.
    numbered = sorted(parsed["staticPolicies"].items(), key=lambda item: int(item[0].removeprefix("policy")))
    return tuple(WrittenRule(piece, expr, line) for (piece, line), (_, expr) in zip(_pieces(text), numbered, strict=True))


def _first_bad_line(text: str) -> int:
    """Return the line of the first rule that Cedar cannot read; its own message does not say."""
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
    """Tell whether Cedar's parser, which recurses without a limit, could run out of stack."""
    levels, total = [0], 0
    for token in _TOKEN.finditer(text):
        piece = token[0]
        if piece == ";":
            levels, total = [0], 0
        elif piece in _CLOSING:
            total -= levels.pop() if len(levels) > 1 else 0
        elif not piece.startswith(('"', "//")):
            levels[-1] += 1
            total += 1
            if piece in _OPENING:
                levels.append(0)
        if len(levels) > _MAX_NESTING or total > _MAX_TOKENS:
            return True
    return False


def _depth_of(value: object) -> int:
    """Return the nesting depth of a parsed rule, without recursion, whose limit differs between versions of Python."""
    level: list[object] = [value]
    depth = 0
    while level:
        depth += 1
        level = [inner for parent in level for inner in _children(parent)]
    return depth


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _pieces(text: str) -> Iterable[tuple[str, int]]:
    """Yield each rule's text and its line: a semicolon outside strings and comments always ends a rule."""
    start, line = 0, 1
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            piece = text[start : token.end()]
            indent = len(piece) - len(piece.lstrip())
            yield piece.strip(), line + piece.count("\n", 0, indent)
            line += piece.count("\n")
            start = token.end()


def concerns(rule: Expr, action: str) -> bool:
    """Tell whether a rule's head allows for an action; a group of actions is assumed to contain every action."""
    head = cast("dict[str, object]", rule["action"])
    if head["op"] == "All":
        return True
    entities = [head["entity"]] if "entity" in head else cast("list[object]", head["entities"])
    ids = {cast("dict[str, str]", entity)["id"] for entity in entities}
    return action in ids or any(group not in _ACTIONS for group in ids)
