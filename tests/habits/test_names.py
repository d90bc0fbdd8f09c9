"""Names in the program: each public class name once, and the words of the field in place of words of our own."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "curtainwall"
MODULES = sorted(SOURCE.rglob("*.py"))

BANNED = frozenset({"told", "heard", "hearing", "whoever", "wish", "wishes", "wished", "staying", "valuing", "spoke", "said"})
"""Words that name what was done to a thing, or that only this project would use, in place of what the thing is."""

FOG = ("Manager", "Handler", "Helper", "Util", "Utils", "Engine", "Orchestrator", "Context", "Data", "Info", "Impl", "Base")

STORED: frozenset[str] = frozenset()
"""Names that are in logs, files or the public interface; these never change."""


def test_a_public_class_name_exists_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for name in _public_classes(module.read_text(encoding="utf-8")):
            places[name].append(str(module.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_class_name_ends_in_a_word_that_says_nothing() -> None:
    names = {name for module in MODULES for name in _public_classes(module.read_text(encoding="utf-8"))}
    assert sorted(name for name in names if name.endswith(FOG) and name not in STORED) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_are_words_of_the_field(module: Path) -> None:
    assert sorted(set(_in_dialect(module.read_text(encoding="utf-8"))) - STORED) == []


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def see_room(): ...", "see_room"),
        ("def f(told): ...", "told"),
        ("def f():\n    for heard in (): ...", "heard"),
        ("class Wish: ...", "Wish"),
        ("class A:\n    is_told: bool", "is_told"),
        ("class A:\n    def _hearing(self): ...", "_hearing"),
        ("import json as wish", "wish"),
    ],
)
def test_the_scan_finds_what_it_is_for(code: str, name: str) -> None:
    assert list(_in_dialect(code)) == [name]


def _public_classes(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def _in_dialect(text: str) -> Iterator[str]:
    return (name for name in _bound(ast.parse(text)) if not BANNED.isdisjoint(_words(name)) or _words(name)[:1] == ["see"])


def _words(name: str) -> list[str]:
    """Return the words of a name in snake or camel case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def _bound(tree: ast.AST) -> Iterator[str]:
    """Yield every name that code gives to something: functions, classes, parameters, locals, fields and imports."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case (
                ast.alias(asname=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.ExceptHandler(name=str(name))
            ):
                yield name
            case _:
                pass
