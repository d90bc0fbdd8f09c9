"""Packages that load their public names late have each of them for the type checker, for readers, and for Python alike."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from curtainwall.model.lazy_names import exports_of
from tests.support.repository import PACKAGE, modules, name_of, tree_of

LAZY = [path for path in modules() if path.name == "__init__.py" and "lazy_names(" in path.read_text(encoding="utf-8")]


def typed_names(tree: ast.Module, package: str) -> dict[str, str]:
    """Return the names that the type checker finds in a package's own modules, each with its module."""
    imports = [node for block in tree.body if isinstance(block, ast.If) for node in block.body if isinstance(node, ast.ImportFrom)]
    return {each.name: str(node.module).removeprefix(f"{package}.") for node in imports for each in node.names}


def test_there_are_such_packages() -> None:
    assert {path.parent.name for path in LAZY} >= {"model", "policy", "session", "runtime", "store"}


@pytest.mark.parametrize("door", LAZY, ids=name_of)
def test_every_public_name_is_there_and_is_what_the_type_checker_takes_it_for(door: Path) -> None:
    package = ".".join(("curtainwall", *door.parent.relative_to(PACKAGE).parts))
    typed, room = typed_names(tree_of(door), package), import_module(package)
    assert typed.keys() == exports_of(package).keys(), f"write `from module import name as name`, on one line, in {name_of(door)}"
    for name, module in typed.items():
        assert getattr(room, name) is getattr(import_module(f"{package}.{module}"), name)


def test_a_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        import_module("curtainwall.policy").nonsense  # noqa: B018 - asking for it is what is tried
