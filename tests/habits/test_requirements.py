"""Requirements and tests match both ways: none without a test, none invented by a test."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import TESTS, modules, name_of, tree_of

MANIFEST = TESTS / "spec" / "requirements.toml"
ID = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")


def requirements() -> list[dict[str, str]]:
    """Return the rows of the manifest."""
    return tomllib.loads(MANIFEST.read_text(encoding="utf-8"))["requirement"]


def marks(tree: ast.AST) -> Iterator[tuple[int, ast.Call]]:
    """Yield each `covers(…)` or `pytest.mark.covers(…)` that is written anywhere in a tree, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="covers")) | ast.Call(func=ast.Attribute(attr="covers")):
                yield node.lineno, node
            case _:
                pass


def covered(path: Path) -> dict[str, str]:
    """Return the ids that a test module claims, each with the place."""
    places: dict[str, str] = {}
    for line, mark in marks(tree_of(path)):
        place = f"{name_of(path)}:{line}"
        assert mark.args, f"{place}: covers() names no requirement"
        assert not mark.keywords, f"{place}: covers() takes ids alone"
        for argument in mark.args:
            assert isinstance(argument, ast.Constant), f"{place}: write the id as a plain string, so that it can be searched for"
            assert isinstance(argument.value, str), f"{place}: an id is a string"
            places[argument.value] = place
    return places


@pytest.fixture(scope="module")
def claims() -> dict[str, str]:
    """Return every id that any test claims."""
    return {id_: place for path in modules(TESTS) if path.name.startswith("test_") for id_, place in covered(path).items()}


def test_every_requirement_has_a_test(claims: dict[str, str]) -> None:
    missing = {row["id"] for row in requirements()} - claims.keys()
    assert sorted(missing) == [], 'mark the test that holds it up with `@covers("id")`'


def test_every_claim_is_a_requirement(claims: dict[str, str]) -> None:
    known = {row["id"] for row in requirements()}
    unknown = {id_: place for id_, place in sorted(claims.items()) if id_ not in known}
    assert unknown == {}, "add a row with this id to tests/spec/requirements.toml"


def test_each_requirement_is_one_id_and_one_sentence() -> None:
    for row in requirements():
        assert row.keys() == {"id", "says"}, row
        assert ID.fullmatch(row["id"]), f"`{row['id']}`: lower-case words, joined by dots and dashes"
        assert row["says"].endswith("."), f"`{row['id']}` must say a sentence"
    assert [id_ for id_, count in Counter(row["id"] for row in requirements()).items() if count > 1] == []


@pytest.mark.parametrize(
    "code", ['@covers("a.b")\ndef test(): ...', '@pytest.mark.covers("a.b")\nclass TestIt: ...', 'pytestmark = [covers("a.b")]']
)
def test_marks_are_found_however_they_are_written(code: str) -> None:
    assert [ast.literal_eval(mark.args[0]) for _, mark in marks(ast.parse(code))] == ["a.b"]
