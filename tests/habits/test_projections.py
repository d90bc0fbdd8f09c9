"""A projection names every event of the groups that it reads: a new event is a list of type errors, and never an ignored one."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import pytest

import curtainwall.model.events as events
from curtainwall.model import AnyEvent
from tests.support.repository import PACKAGE, modules, name_of, tree_of

MANY = 4
"""A module that tells so many events apart is a projection; one that looks for two or three is not, unless they are a whole group."""

EXCEPTIONS: Mapping[str, str] = {
    "channels/slash/lines.py": "its `case _` is no gap: it shows every other event by its fields",
}
"""Modules that may have a `case _` over events, each with the reason."""

GROUPS = {
    name: frozenset(kind.__name__ for kind in get_args(getattr(events, name)))
    for name in vars(events)
    if name.endswith("Event") and name not in ("AnyEvent", "WorkEvent")
}
KINDS = frozenset(kind.__name__ for kind in get_args(AnyEvent))


def matches(tree: ast.AST) -> Iterator[tuple[ast.Match, frozenset[str]]]:
    """Yield every `match` over events, with the events that it names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Match):
            named = frozenset(name for case in node.cases for name in _named(case.pattern)) & KINDS
            if named:
                yield node, named


def _named(pattern: ast.pattern) -> Iterator[str]:
    """Yield the classes that a pattern asks the subject itself for."""
    match pattern:
        case ast.MatchClass(cls=ast.Name(id=name)):
            yield name
        case ast.MatchOr(patterns=parts):
            for part in parts:
                yield from _named(part)
        case ast.MatchAs(pattern=ast.pattern() as inner):
            yield from _named(inner)
        case _:
            pass


def is_silent(node: ast.Match) -> bool:
    """Tell whether a `match` ends in a `case _` that swallows what it does not know.

    Without a `case _` the type checker sees to it that the cases are complete.
    """
    last = node.cases[-1]
    if last.guard is not None or not (isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None):
        return False
    calls = [call.func for statement in last.body for call in ast.walk(statement) if isinstance(call, ast.Call)]
    return not any(isinstance(func, ast.Name) and func.id == "assert_never" for func in calls)


def is_projection(tree: ast.AST) -> bool:
    """Tell whether a module tells many events apart, or all events of a group."""
    each_named = [named for _, named in matches(tree)]
    whole = [group for group in GROUPS.values() if len(group) > 1 and any(group <= named for named in each_named)]
    return bool(whole) or len(frozenset[str]().union(*each_named)) >= MANY


def silent_lines(tree: ast.AST) -> list[int]:
    """Return where a projection swallows events."""
    return [node.lineno for node, _ in matches(tree) if is_silent(node)] if is_projection(tree) else []


def unhandled(tree: ast.AST, groups: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the events of groups that a projection reads, as a whole by name, and does not handle anywhere."""
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in groups}
    handled = frozenset[str]().union(*(named for _, named in matches(tree)))
    touched = {group for group in read if handled & groups[group]}
    return {kind for group in touched for kind in groups[group]} - handled


def key_of(module: Path) -> str:
    return module.relative_to(PACKAGE).as_posix()


PROJECTIONS = [module for module in modules() if is_projection(tree_of(module))]


def test_the_groups_make_up_every_event_and_none_is_in_two() -> None:
    members = [kind for group in GROUPS.values() for kind in group]
    assert sorted([*members, "ExtensionNoted"]) == sorted(KINDS), "add the event to exactly one group, at the end of its module"


@pytest.mark.parametrize("module", PROJECTIONS, ids=name_of)
def test_no_projection_swallows_events(module: Path) -> None:
    lines = silent_lines(tree_of(module))
    if key_of(module) in EXCEPTIONS:
        assert lines, "it has no silent `case _` any more: take it off the list"
    else:
        assert lines == [], "name the other events of the group, and end in `assert_never`"


def test_every_exception_is_a_projection() -> None:
    assert EXCEPTIONS.keys() <= {key_of(module) for module in PROJECTIONS}


def test_a_new_event_is_missed_in_every_projection_of_its_group_and_only_there() -> None:
    grown = {**GROUPS, "CallEvent": GROUPS["CallEvent"] | {"CallPostponed"}}
    readers = {key_of(module) for module in PROJECTIONS if unhandled(tree_of(module), grown) == {"CallPostponed"}}
    assert {
        "session/open_work.py",
        "operations/activity.py",
        "channels/web/render/items.py",
        "agents/builtin/history.py",
        "store/audit/lines.py",
    } <= readers
    assert "channels/conversation.py" not in readers, "it reads nothing of calls"
    for module in PROJECTIONS:
        assert unhandled(tree_of(module), GROUPS) == set(), f"{key_of(module)} reads the group and does not name the event"


SILENT = """
match event:
    case TurnStarted() | TurnResumed():
        a()
    case TurnEnded(status=status) as ended if status:
        b(ended)
    case InterruptAsked():
        c()
    case _:
        pass
"""


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        (SILENT, True),
        (SILENT.replace("case _:\n        pass", "case other:\n        show(other)"), True),
        (SILENT.replace("pass", "assert_never(event)"), False),
        (SILENT.replace("case _:\n        pass", ""), False),
        (SILENT.replace("InterruptAsked", "SomethingElse"), False),
        ("match event:\n    case RouteSet() | SessionDeleted():\n        a()\n    case _:\n        pass", True),
        ("match event:\n    case RouteSet():\n        a()\n    case _:\n        pass", False),
        (SILENT.replace("case InterruptAsked()", "case [InterruptAsked()]"), False),
    ],
)
def test_the_scan_finds_what_it_is_for(code: str, is_found: bool) -> None:
    assert bool(silent_lines(ast.parse(code))) is is_found
