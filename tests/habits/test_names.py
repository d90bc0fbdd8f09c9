"""Names: each public class name once, and the words of the field in place of words of our own, for locals and attributes too."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "curtainwall"
MODULES = sorted(SOURCE.rglob("*.py"))

BANNED = frozenset({"told", "heard", "hearing", "whoever", "wish", "wishes", "wished", "staying", "valuing"})
"""Words that name what was done to a thing, or that only this project would use, in place of what the thing is."""

DONE_TO = frozenset({"said", "found"})
"""As the whole name of a variable, these say what was done to a value and not what it is."""

FOG = ("Manager", "Handler", "Helper", "Util", "Utils", "Orchestrator", "Data", "Info", "Impl", "Base")
"""Not `Context`, which is what a model is given here, nor `Engine`, which is Docker's own name."""


def test_a_public_class_name_exists_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for name in _public_classes(module.read_text(encoding="utf-8")):
            places[name].append(str(module.relative_to(SOURCE)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert twice == {}, "the lowest package keeps the name; let the other class say what it is, as `SandboxUsage` beside `Usage`"


def test_no_class_name_ends_in_a_word_that_says_nothing() -> None:
    names = {name for module in MODULES for name in _public_classes(module.read_text(encoding="utf-8"))}
    assert sorted(name for name in names if name.endswith(FOG)) == [], "say what it is or does instead"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_are_words_of_the_field(module: Path) -> None:
    assert sorted(_in_dialect(module.read_text(encoding="utf-8"))) == [], "use a word that other programs have for it; `BANNED` lists ours"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def see_room(): ...", "see_room"),
        ("class Wish: ...", "Wish"),
        ("class TeamTold: ...", "TeamTold"),
        ("class A:\n    async def _hearing(self): ...", "_hearing"),
        ("is_told = True", "is_told"),
        ("def f(wish): ...", "wish"),
        ("self.heard_at = 1", "heard_at"),
        ("match it:\n    case str() as said: ...", "said"),
        ("for found in (): ...", "found"),
    ],
)
def test_the_scan_finds_what_it_is_for(code: str, name: str) -> None:
    assert list(_in_dialect(code)) == [name]


def test_the_scan_lets_usual_words_pass() -> None:
    assert list(_in_dialect("NOT_FOUND = 404\nseen = find(message, wanted)\nreply.text = told.text")) == []


def _public_classes(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def _in_dialect(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    yield from (name for name in _defined(tree) if not BANNED.isdisjoint(_words(name)) or _words(name)[:1] == ["see"])
    yield from (name for name in _variables(tree) if not BANNED.isdisjoint(_words(name)) or name in DONE_TO)


def _words(name: str) -> list[str]:
    """Return the words of a name in snake or camel case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def _defined(tree: ast.AST) -> Iterator[str]:
    """Yield the name of every class, function and method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def _variables(tree: ast.AST) -> Iterator[str]:
    """Yield the name of every variable, parameter and attribute where it gets a value."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case _:
                pass
