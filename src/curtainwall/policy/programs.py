"""Other names of a command: what a rule that forbids a program by name holds for besides the name, and no rule that permits one."""

import re
from collections.abc import Iterable
from typing import Final, cast

from curtainwall.model import CommandFacts, Resource
from curtainwall.policy.cedar import Expr
from curtainwall.policy.entities import Entity
from curtainwall.policy.literals import entities_in

_WORD: Final = re.compile(r"[A-Za-z0-9_.+@-]+")
# What a shell takes out of a word before it looks for a program of that name.
_VANISHING: Final = re.compile(r"\\\n|[\\'\"]|\$[@*]")
_NAMING: Final = frozenset({"Program", "Command"})


def named_programs(rules: Iterable[Expr]) -> frozenset[str]:
    """Return the programs that rules name."""
    return frozenset(name for rule in rules for kind, name in entities_in(rule) if kind == "Program")


def under_other_names(entity: Entity, resource: Resource, named: frozenset[str]) -> Entity | None:
    """Return a command as the rules that forbid by name have to see it as well, or None where that is no different.

    A program that is called by a path is also known by its last part. A command that cannot be parsed may run whatever it mentions, so
    it counts as running each program among those `named`.
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
    """Tell whether a rule is a forbid that holds for commands of certain names alone, and not for all except some.

    INVARIANT: a rule that forbids everything but what it names must not see other names. `/opt/run` is not `run` to it.
    """
    if rule["effect"] != "forbid":
        return False
    if any(kind in _NAMING for kind, _ in entities_in({"resource": rule["resource"]})):
        return True
    conditions = [(condition["kind"] == "when", condition["body"]) for condition in cast("list[Expr]", rule["conditions"])]
    return any(_nameless(body, wanted=wanted) is not wanted and _nameless(body, wanted=wanted) is not None for wanted, body in conditions)


def _mentioned(text: str) -> set[str]:
    return {word for told in (text, _VANISHING.sub("", text)) for word in _WORD.findall(told)}


def _nameless(expr: object, *, wanted: bool) -> bool | None:
    """Return what an expression is for a command that has none of the names which would make it what is wanted; None if that is open."""
    ((op, args),) = cast("dict[str, object]", expr).items()
    inner = cast("dict[str, object]", args) if isinstance(args, dict) else {}
    match op:
        case "&&" | "||":
            deciding = op == "||"
            sides = (_nameless(inner["left"], wanted=wanted), _nameless(inner["right"], wanted=wanted))
            if deciding in sides:
                return deciding
            return None if None in sides else not deciding
        case "!":
            return _opposite(_nameless(inner["arg"], wanted=not wanted))
        case "!=":
            return _opposite(_nameless({"==": inner}, wanted=not wanted))
        case "if-then-else":
            then, other = (_nameless(inner[branch], wanted=wanted) for branch in ("then", "else"))
            return then if then is other else None
        case "Value":
            return args if isinstance(args, bool) else None
        case _:
            return False if wanted and _is_about_names(expr) else None


def _opposite(value: bool | None) -> bool | None:
    return None if value is None else not value


def _is_about_names(expr: object) -> bool:
    """Tell whether an expression looks at a command's text, or names a command or a program."""
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            inner = cast("dict[str, object]", node)
            if inner.get("attr") == "text" or (inner.get("type") in _NAMING and "id" in inner):
                return True
            waiting.extend(inner.values())
        elif isinstance(node, list):
            waiting.extend(cast("list[object]", node))
    return False
