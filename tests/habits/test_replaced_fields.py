"""`dataclasses.replace` takes any keyword as far as the type checker knows, so a renamed field would be noticed only at run time."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")))


def _fields(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield line.target.id


def _replaced(tree: ast.Module) -> Iterator[tuple[int, str]]:
    if not any(isinstance(node, ast.ImportFrom) and node.module == "dataclasses" for node in tree.body):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "replace":
            yield from ((node.lineno, word.arg) for word in node.keywords if word.arg is not None)


def _unknown(trees: dict[str, ast.Module]) -> list[str]:
    known = {field for tree in trees.values() for field in _fields(tree)}
    return [f"{name}:{line} {field}" for name, tree in trees.items() for line, field in _replaced(tree) if field not in known]


def test_every_field_that_is_replaced_is_a_field_of_some_class() -> None:
    assert _unknown({str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}) == []


@pytest.mark.parametrize(("word", "found"), [("name", []), ("old_name", ["it:4 old_name"])])
def test_a_renamed_field_is_found(word: str, found: list[str]) -> None:
    code = f"from dataclasses import replace\nclass Thing:\n    name: str\nreplace(thing, {word}='x')\n"
    assert _unknown({"it": ast.parse(code)}) == found
