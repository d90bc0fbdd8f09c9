"""How a rule uses `context.approved`: that approving never makes it stricter, and whether it can make something ask."""

from collections.abc import Iterator
from typing import Literal, cast

from curtainwall.policy.cedar import Expr

_CONTEXT = {"Var": "context"}


def approving_only_helps(rule: Expr) -> bool:
    """Tell whether a yes can only move this rule towards allowing: a permit may start to hold, a forbid may cease to."""
    permits = rule["effect"] == "permit"
    return all(_follows(body, upwards=permits is wanted) for wanted, body in _conditions(rule))


def waits_for_a_yes(rule: Expr) -> bool:
    """Tell whether a rule reads `context.approved` at all."""
    return any(_mentions(body) for _, body in _conditions(rule))


def kind_of(rule: Expr) -> Literal["allow", "ask", "deny"]:
    """Return what a rule is for: a forbid that no yes lifts in every case denies, a permit that waits for a yes asks."""
    bodies = list(_conditions(rule))
    if not waits_for_a_yes(rule):
        return "allow" if rule["effect"] == "permit" else "deny"
    if rule["effect"] == "permit":
        return "ask"
    lifted = any(_known(body) is not wanted and _known(body) is not None for wanted, body in bodies)
    return "ask" if lifted else "deny"


def _conditions(rule: Expr) -> Iterator[tuple[bool, Expr]]:
    """Yield each condition with the value it must have for the rule to hold."""
    for condition in cast("list[Expr]", rule["conditions"]):
        yield condition["kind"] == "when", cast("Expr", condition["body"])


def _follows(expr: Expr, *, upwards: bool) -> bool:
    """Tell whether approving can change this expression in one direction alone."""
    if not _mentions(expr):
        return True
    if _is_approved(expr):
        return upwards
    ((op, args),) = expr.items()
    inner = cast("dict[str, Expr]", args)
    match op:
        case "&&" | "||":
            return _follows(inner["left"], upwards=upwards) and _follows(inner["right"], upwards=upwards)
        case "!":
            return _follows(inner["arg"], upwards=not upwards)
        case "if-then-else":
            both = _follows(inner["then"], upwards=upwards) and _follows(inner["else"], upwards=upwards)
            return both and not _mentions(inner["if"])
        case _:
            return False


def _known(expr: Expr) -> bool | None:
    """Return what an expression is once approved, or None where that depends on something else."""
    if _is_approved(expr):
        return True
    ((op, args),) = expr.items()
    if op == "Value":
        return args if isinstance(args, bool) else None
    inner = cast("dict[str, Expr]", args)
    match op:
        case "&&" | "||":
            deciding = op == "||"
            sides = (_known(inner["left"]), _known(inner["right"]))
            if deciding in sides:
                return deciding
            return None if None in sides else not deciding
        case "!":
            known = _known(inner["arg"])
            return None if known is None else not known
        case _:
            return None


def _is_approved(expr: object) -> bool:
    return expr == {".": {"left": _CONTEXT, "attr": "approved"}}


def _mentions(expr: object) -> bool:
    """Tell whether `context.approved` is read here, by name or as a part of the whole context."""
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        if _is_approved(node) or node == _CONTEXT:
            return True
        if isinstance(node, dict):
            inner = cast("dict[str, object]", node)
            waiting.extend(inner.values() if not _reads_another(inner) else ())
        elif isinstance(node, list):
            waiting.extend(cast("list[object]", node))
    return False


def _reads_another(node: dict[str, object]) -> bool:
    """Tell whether a node reads an attribute of the context, or asks whether there is one; which one was looked at before."""
    for op in (".", "has"):
        args = node.get(op)
        if isinstance(args, dict) and cast("dict[str, object]", args).get("left") == _CONTEXT:
            return True
    return False
