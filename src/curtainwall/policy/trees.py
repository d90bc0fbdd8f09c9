"""Whole trees: a directory that is moved, deleted or handed to a server is judged by what rules forbid beneath it as well."""

from collections.abc import Iterable, Iterator

from curtainwall.model import MOVE_FILE, PATH_ROLES, PathFacts, Resource, Role, is_beneath, is_external
from curtainwall.policy.canonical import is_path
from curtainwall.policy.cedar import Expr
from curtainwall.policy.literals import entities_in, texts_in


def named_paths(rules: Iterable[Expr]) -> tuple[str, ...]:
    """Return the paths that rules name, and for each pattern one path that it matches."""
    found = {path for rule in rules for path in _paths_in(rule) if is_path(path)}
    return tuple(sorted(found))


def paths_beneath(resource: Resource, tool: str, named: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of these paths a call affects because they are in a directory that it affects as a whole."""
    if not _is_whole(resource, tool):
        return ()
    return tuple(path for path in named if path != resource.value and is_beneath(path, resource.value))


def _is_whole(resource: Resource, tool: str) -> bool:
    """Tell whether a resource stands for everything beneath it.

    INVARIANT: reading a tree is not denied because of one file in it; the tools that show contents leave such a file out. Git's own
    tools look at each file before they write it.
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
            # A rule may hold for what is in a directory, and not for the directory.
            yield f"{name.rstrip('/')}/_"
    yield from texts_in(rule)
