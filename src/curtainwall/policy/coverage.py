"""Finds what a rule names, and what it covers beyond that: other names of a command, and everything beneath a directory."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, cast

from curtainwall.model import (
    MOVE_FILE,
    PATH_ROLES,
    CommandFacts,
    Mode,
    PathFacts,
    Resource,
    Role,
    Scope,
    ToolEffect,
    is_beneath,
    is_external,
)
from curtainwall.policy.canonical import fault_of, is_path
from curtainwall.policy.cedar import Expr, Uid
from curtainwall.policy.entities import Entity

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
    """Yield a sentence for each name or word in a rule that can never match anything."""
    for kind, name in entities_in(rule):
        fault = None if kind == "Action" else fault_of(kind, name)
        if fault is not None:
            yield f'`{kind}::"{name}"` would never match; {fault}'
    for node in _nodes(rule):
        for attribute, word in _compared(node):
            allowed = _WORDS.get(attribute)
            if allowed is not None and word not in allowed:
                yield f"`{attribute}` is never `{word}`; it is one of {', '.join(f'`{other}`' for other in sorted(allowed))}"


def labels_awaited(rule: Expr) -> frozenset[str]:
    """Return the labels that a rule asks about."""
    return frozenset(word for node in _nodes(rule) for attribute, word in _compared(node) if attribute == "labels")


def texts_in(rule: Expr) -> Iterator[str]:
    """Yield every text that a rule compares a resource's `text` with; for a pattern, one text that it matches."""
    for node in _nodes(rule):
        yield from (word for attribute, word in _compared(node) if attribute == "text")
        like = cast("dict[str, object]", node.get("like") or {})
        if _attribute(like.get("left")) == "text":
            parts = cast("list[str | dict[str, str]]", like["pattern"])
            yield "".join("_" if isinstance(part, str) else part["Literal"] for part in parts)


def needs(rule: Expr) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels that must be in force, and the modes the session must be in one of, for a rule to apply at all."""
    labels: dict[str, None] = {}
    modes: dict[str, None] = {}
    conditions = cast("list[dict[str, object]]", rule.get("conditions", []))
    pending = [condition["body"] for condition in conditions if condition["kind"] == "when"]
    while pending:
        node = cast("dict[str, object]", pending.pop())
        # Conditions inside an alternative or a `not` need not be true.
        if "&&" in node:
            pending.extend(cast("dict[str, object]", node["&&"]).values())
        elif node.keys() & {"contains", "containsAll"}:
            labels |= dict.fromkeys(word for name, word in _compared(node) if name == "labels")
        elif "==" in node:
            modes |= dict.fromkeys(word for name, word in _compared(node) if name == "mode")
    return tuple(sorted(labels)), tuple(sorted(modes))


def _compared(node: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Yield attribute and word of each comparison in this node, on either side."""
    for op in ("==", "!=", "contains", "containsAny", "containsAll"):
        args = node.get(op)
        if isinstance(args, dict):
            sides = cast("dict[str, object]", args)
            for side, other in (("left", "right"), ("right", "left")):
                attribute = _attribute(sides.get(side))
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
    pending: list[object] = [{name: part for name, part in rule.items() if name != "annotations"}]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            inner = cast("dict[str, object]", node)
            yield inner
            pending.extend(inner.values())
        elif isinstance(node, list):
            pending.extend(cast("list[object]", node))


_WORD: Final = re.compile(r"[A-Za-z0-9_.+@-]+")
# The characters that a shell removes from a word before it looks for a program with that name.
_REMOVED_BY_SHELL: Final = re.compile(r"\\\n|[\\'\"]|\$[@*]")
_NAME_TYPES: Final = frozenset({"Program", "Command"})


def named_programs(rules: Iterable[Expr]) -> frozenset[str]:
    """Return the programs that rules name."""
    return frozenset(name for rule in rules for kind, name in entities_in(rule) if kind == "Program")


def aliases_of_command(entity: Entity, resource: Resource, named: frozenset[str]) -> Entity | None:
    """Return the second form in which rules that forbid by name have to see a command, or None if it is the same.

    A program that is called by its path is also known by the last part of it. A command that cannot be parsed may run anything it mentions,
    so it counts as running every mentioned program that is among `named`.
    """
    if not isinstance(resource.facts, CommandFacts):
        return None
    program, text = resource.facts.program, resource.value
    base = program.rpartition("/")[2]
    names = [base] if base and base != program else []
    if names and text.startswith(program):
        text = f"{base}{text[len(program) :]}"
    if not resource.facts.parsed:
        names += sorted((_mentioned(resource.value) & named) - {program, *names})
    if not names:
        return None
    parents = (*entity.parents, *(("Program", name) for name in names))
    return Entity(("Command", text), {**entity.attrs, "text": text}, parents)


def forbids_by_name(rule: Expr) -> bool:
    """Tell whether a rule is a forbid that applies only to commands with certain names, and not to all except some.

    INVARIANT: a rule that forbids everything except what it names must not see other names. To it, `/opt/run` is not `run`.
    """
    if rule["effect"] != "forbid":
        return False
    if any(kind in _NAME_TYPES for kind, _ in entities_in({"resource": rule["resource"]})):
        return True
    conditions = [(condition["kind"] == "when", condition["body"]) for condition in cast("list[Expr]", rule["conditions"])]
    return any(
        _value_without_names(body, wanted=wanted) is not wanted and _value_without_names(body, wanted=wanted) is not None
        for wanted, body in conditions
    )


def _mentioned(text: str) -> set[str]:
    return {word for spelling in (text, _REMOVED_BY_SHELL.sub("", text)) for word in _WORD.findall(spelling)}


def _value_without_names(expr: object, *, wanted: bool) -> bool | None:
    """Evaluate an expression for a command that has none of the names which would make it equal `wanted`; None if that is undecided."""
    ((op, args),) = cast("dict[str, object]", expr).items()
    inner = cast("dict[str, object]", args) if isinstance(args, dict) else {}
    match op:
        case "&&" | "||":
            deciding = op == "||"
            sides = (_value_without_names(inner["left"], wanted=wanted), _value_without_names(inner["right"], wanted=wanted))
            if deciding in sides:
                return deciding
            return None if None in sides else not deciding
        case "!":
            return _negate(_value_without_names(inner["arg"], wanted=not wanted))
        case "!=":
            return _negate(_value_without_names({"==": inner}, wanted=not wanted))
        case "if-then-else":
            then, other = (_value_without_names(inner[branch], wanted=wanted) for branch in ("then", "else"))
            return then if then is other else None
        case "Value":
            return args if isinstance(args, bool) else None
        case _:
            return False if wanted and _is_about_names(expr) else None


def _negate(value: bool | None) -> bool | None:
    return None if value is None else not value


def _is_about_names(expr: object) -> bool:
    """Tell whether an expression reads a command's text, or names a command or a program."""
    pending = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            inner = cast("dict[str, object]", node)
            if inner.get("attr") == "text" or (inner.get("type") in _NAME_TYPES and "id" in inner):
                return True
            pending.extend(inner.values())
        elif isinstance(node, list):
            pending.extend(cast("list[object]", node))
    return False


def named_paths(rules: Iterable[Expr]) -> tuple[str, ...]:
    """Return the paths that rules name, and for each pattern one path that it matches."""
    paths = {path for rule in rules for path in _paths_in(rule) if is_path(path)}
    return tuple(sorted(paths))


def paths_beneath(resource: Resource, tool: str, named: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of these paths a call affects because it affects a whole directory above them."""
    if not _is_whole(resource, tool):
        return ()
    return tuple(path for path in named if path != resource.value and is_beneath(path, resource.value))


def _is_whole(resource: Resource, tool: str) -> bool:
    """Tell whether a resource includes everything beneath it.

    INVARIANT: reading a tree is not denied because of one file in it; the tools that show contents leave such a file out. The git tools
    check each file before they write it.
    """
    role = resource.role
    if role is Role.DELETE_PATH:
        return True
    if tool == MOVE_FILE:
        return role in PATH_ROLES
    return role is Role.WRITE_PATH and is_external(tool) and isinstance(resource.facts, PathFacts) and resource.facts.whole


def _paths_in(rule: Expr) -> Iterator[str]:
    for kind, name in entities_in(rule):
        if kind == "Path":
            yield name
            # A rule may apply to the contents of a directory and not to the directory itself.
            yield f"{name.rstrip('/')}/_"
    yield from texts_in(rule)
