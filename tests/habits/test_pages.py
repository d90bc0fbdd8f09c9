"""The pages of docs/ tell the truth: glossary, threats and config are compared with the code."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import curtainwall.model
from curtainwall.config.docs import render
from curtainwall.config.loader import parse_config
from curtainwall.model.lazy_names import exports_of
from tests.support.repository import DOCS, ROOT, name_of, table_rows, tree_of

GLOSSARY = table_rows(DOCS / "glossary.md", ("word", "meaning", "where"))
THREATS = table_rows(DOCS / "threats.md", ("threat", "what stops it", "test"))

# The words that the house is built of. A new idea gets its word here and its row on the page.
WORDS = frozenset(
    """
    session event command subject role resource verdict approval grant permit label channel operator workspace protected-path feed
    """.split()
)


def in_ticks(text: str) -> list[str]:
    """Return what stands between backticks."""
    return re.findall(r"`([^`]+)`", text)


def the(dotted: str) -> object:
    """Return what a dotted name stands for: a module, or something inside one."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


def as_word(name: str) -> str:
    """Return a class name as the glossary would write it: `ProtectedPath` is `protected-path`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def rows_by_word() -> dict[str, dict[str, str]]:
    """Return the glossary by its words, each written with a dash for a space."""
    return {row["word"].strip("`").replace(" ", "-"): row for row in GLOSSARY}


def test_the_glossary_has_every_word_once() -> None:
    assert sorted(WORDS - rows_by_word().keys()) == []
    assert len(rows_by_word()) == len(GLOSSARY)


@pytest.mark.parametrize("row", GLOSSARY, ids=lambda row: row["word"])
def test_what_the_glossary_points_at_is_there(row: dict[str, str]) -> None:
    assert row["meaning"]
    for dotted in in_ticks(row["where"]):
        assert the(dotted) is not None


def test_a_name_of_the_model_that_is_a_word_is_listed_at_that_word() -> None:
    rows = rows_by_word()
    words = {name: rows[as_word(name)] for name in exports_of("curtainwall.model") if as_word(name) in rows}
    assert words
    assert [name for name, row in words.items() if f"curtainwall.model.{name}" not in in_ticks(row["where"])] == []


def test_the_glossary_names_exactly_the_roles_and_effects_there_are() -> None:
    rows = rows_by_word()
    for word, enum in (("role", curtainwall.model.Role), ("verdict", curtainwall.model.Effect)):
        assert set(in_ticks(rows[word]["meaning"])) == {member.value for member in enum}, word


@pytest.mark.parametrize("row", THREATS, ids=lambda row: row["threat"])
def test_every_threat_names_tests_that_exist(row: dict[str, str]) -> None:
    assert row["what stops it"]
    named = in_ticks(row["test"])
    assert named, "name the test as `tests/security/test_….py::test_…`"
    for place in named:
        file, _, function = place.partition("::")
        assert file.startswith("tests/"), place
        assert (ROOT / file).is_file(), f"{file} does not exist"
        function = function.partition("[")[0].rpartition("::")[2]
        functions = {node.name for node in ast.walk(tree_of(ROOT / file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert function.startswith("test_"), place
        assert function in functions, f"{file} has no {function}"


def test_the_page_of_what_runs_later_lists_exactly_the_names_that_count() -> None:
    rows = table_rows(DOCS / "runs-later.md", ("kind", "what sets them off", "names"))
    listed = [(row["kind"], row["what sets them off"], tuple(in_ticks(row["names"]))) for row in rows]
    assert listed == [(kind.name, kind.trigger, kind.names) for kind in curtainwall.model.LATER_KINDS], "model/later.py has the names"


def test_every_key_of_the_configuration_is_written_with_dashes() -> None:
    keys = re.findall(r"^\| `([^`]+)` \|", render(), re.MULTILINE)
    assert "warn-at" in keys
    assert [key for key in keys if "_" in key] == [], 'give the field an alias: `Field(…, alias="warn-at")`'


EXAMPLES = [
    (page.name, text)
    for page in sorted(DOCS.glob("*.md"))
    for text in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
]


def fault_in(text: str) -> str | None:
    """Return what is wrong with a configuration; an example may leave out the rest of a table."""
    try:
        parse_config(text)
    except ValueError as fault:
        return None if "` is missing; write it" in str(fault) else str(fault)
    return None


@pytest.mark.parametrize("text", [text for _, text in EXAMPLES], ids=[page for page, _ in EXAMPLES])
def test_what_pages_have_people_write_into_the_configuration_is_taken(text: str) -> None:
    assert fault_in(text) is None


LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(?:#[^)]*)?\)")


def test_links_between_pages_lead_somewhere() -> None:
    dead = [
        f"{name_of(page)}: {target}"
        for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert dead == []


ANCHOR = re.compile(r"\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)")


def anchors_of(page: Path) -> set[str]:
    """Return the names under which the headings of a page are found."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_into_pages_lead_to_a_heading() -> None:
    dead = [
        f"{name_of(page)}: {target}#{anchor}"
        for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
        for target, anchor in ANCHOR.findall(page.read_text(encoding="utf-8"))
        if anchor not in anchors_of((page.parent / target) if target else page)
    ]
    assert dead == []
