"""The program is the same on every Python that it names: nothing that a later one has lost, and nothing that only some of them take."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.support.repository import ROOT, modules, name_of, tree_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CLASSIFIED = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.fullmatch(r".*:: Python :: 3\.\d+", line)]
EVERYTHING = [path for room in ("src", "tests", "bench", "examples") for path in modules(ROOT / room) if path != Path(__file__)]

# Modules that 3.12 and 3.13 no longer have.
GONE = frozenset(
    """
    aifc asynchat asyncore audioop cgi cgitb chunk crypt distutils imghdr imp lib2to3 mailcap msilib nis nntplib ossaudiodev pipes smtpd
    sndhdr spwd sunau telnetlib uu xdrlib
    """.split()
)
# Up to 3.12.3 a `?1` is taken for a name, with a complaint at each use; a plain `?` is understood by all.
NUMBERED = re.compile(r"\?[1-9]")


def faults(tree: ast.AST) -> list[str]:
    """Return what in this tree not every Python takes, as `line: what`."""
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found.extend(f"{node.lineno}: import {alias.name}" for alias in names if alias.name.partition(".")[0] in GONE)
            case ast.ImportFrom(module=str(name)) if name.partition(".")[0] in GONE:
                found.append(f"{node.lineno}: from {name}")
            case ast.Constant(value=str(text)) if NUMBERED.search(text) and re.search(r"\b(SELECT|VALUES|WHERE|LIMIT)\b", text):
                found.append(f"{node.lineno}: {NUMBERED.findall(text)[0]}")
            case _:
                pass
    return found


@pytest.mark.parametrize("module", EVERYTHING, ids=name_of)
def test_nothing_is_used_that_only_some_pythons_have(module: Path) -> None:
    assert faults(tree_of(module)) == []


@pytest.mark.parametrize(
    "code", ["import cgi", "from distutils.core import setup", "db.execute('SELECT a WHERE b = ?1')", "f'{READ} LIMIT ?3'"]
)
def test_the_scan_finds_what_it_is_for(code: str) -> None:
    assert faults(ast.parse(code))


def test_the_readme_names_the_pythons_that_the_project_does() -> None:
    *first, last = CLASSIFIED
    assert f"Python {', '.join(first)} and {last}" in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert PROJECT["requires-python"] == f">={CLASSIFIED[0]}"
