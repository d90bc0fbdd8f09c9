"""What a rule names: entities and words that must be spelt exactly, because a forbid on anything else would never hold."""

from collections.abc import Iterator
from typing import cast

from curtainwall.model import Mode, Role, Scope, ToolEffect
from curtainwall.policy.canonical import fault_of
from curtainwall.policy.cedar import Expr, Uid

_WORDS: dict[str, frozenset[str]] = {
    "mode": frozenset(Mode),
    "scope": frozenset(Scope),
    "effect": frozenset(ToolEffect),
    "role": frozenset(Role),
}


def entities_in(rule: Expr) -> Iterator[Uid]:
    """Yield every entity that a rule names, in its head and in its conditions."""
    for node in _nodes(rule):
        if node.keys() == {"type", "id"} and isinstance(node["type"], str) and isinstance(node["id"], str):
            yield node["type"], node["id"]


def misspelt(rule: Expr) -> Iterator[str]:
    """Yield a sentence for each name or word in a rule that nothing is ever called by."""
    for kind, name in entities_in(rule):
        fault = None if kind == "Action" else fault_of(kind, name)
        if fault is not None:
            yield f'`{kind}::"{name}"` would never match; {fault}'
    for node in _nodes(rule):
        for attribute, word in _compared(node):
            known = _WORDS.get(attribute)
            if known is not None and word not in known:
                yield f"`{attribute}` is never `{word}`; it is one of {', '.join(f'`{other}`' for other in sorted(known))}"


def labels_awaited(rule: Expr) -> frozenset[str]:
    """Return the labels that a rule asks about."""
    return frozenset(word for node in _nodes(rule) for attribute, word in _compared(node) if attribute == "labels")


def texts_in(rule: Expr) -> Iterator[str]:
    """Yield every text that a rule compares a resource's `text` with; of a pattern, one text that it matches."""
    for node in _nodes(rule):
        yield from (word for attribute, word in _compared(node) if attribute == "text")
        like = cast("dict[str, object]", node.get("like") or {})
        if _attribute(like.get("left")) == "text":
            parts = cast("list[str | dict[str, str]]", like["pattern"])
            yield "".join("_" if isinstance(part, str) else part["Literal"] for part in parts)


def needs(rule: Expr) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels that must be in force, and the modes of which the session must be in one, for a rule to hold at all."""
    labels: dict[str, None] = {}
    modes: dict[str, None] = {}
    conditions = cast("list[dict[str, object]]", rule.get("conditions", []))
    waiting = [condition["body"] for condition in conditions if condition["kind"] == "when"]
    while waiting:
        node = cast("dict[str, object]", waiting.pop())
        # What stands in an alternative or under a `not` need not hold.
        if "&&" in node:
            waiting.extend(cast("dict[str, object]", node["&&"]).values())
        elif node.keys() & {"contains", "containsAll"}:
            labels |= dict.fromkeys(word for name, word in _compared(node) if name == "labels")
        elif "==" in node:
            modes |= dict.fromkeys(word for name, word in _compared(node) if name == "mode")
    return tuple(sorted(labels)), tuple(sorted(modes))


def _compared(node: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Yield attribute and word of each comparison that this node makes, whichever side they stand on."""
    for op in ("==", "!=", "contains", "containsAny", "containsAll"):
        args = node.get(op)
        if isinstance(args, dict):
            sides = cast("dict[str, object]", args)
            for one, other in (("left", "right"), ("right", "left")):
                attribute = _attribute(sides.get(one))
                if attribute is not None:
                    yield from ((attribute, word) for word in _words(sides.get(other)))


def _attribute(expr: object) -> str | None:
    match expr:
        case {".": {"attr": str(name)}}:
            return name
        case _:
            return None


def _words(expr: object) -> Iterator[str]:
    inner = cast("dict[str, object]", expr) if isinstance(expr, dict) else {}
    word = inner.get("Value")
    if isinstance(word, str):
        yield word
    for member in cast("list[object]", inner.get("Set", [])):
        yield from _words(member)


def _nodes(rule: Expr) -> Iterator[dict[str, object]]:
    waiting: list[object] = [{name: part for name, part in rule.items() if name != "annotations"}]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            inner = cast("dict[str, object]", node)
            yield inner
            waiting.extend(inner.values())
        elif isinstance(node, list):
            waiting.extend(cast("list[object]", node))
