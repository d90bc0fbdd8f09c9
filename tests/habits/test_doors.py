"""Every package and module says on its door what it owns, and every suppression says why."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.repository import PACKAGE, ROOT, modules, name_of, tree_of


@pytest.mark.parametrize("module", modules(), ids=name_of)
def test_every_module_has_a_sentence_on_its_door(module: Path) -> None:
    door = ast.get_docstring(tree_of(module))
    assert door, f"{name_of(module)} has no docstring"
    first = door.splitlines()[0]
    assert first.endswith("."), f"{name_of(module)}: the first line must be a sentence that ends with a full stop: {first!r}"
    assert len(first.split()) > 2, f"{name_of(module)}: say what this room owns, not {first!r}"


def test_every_directory_with_modules_is_a_package_with_a_door() -> None:
    rooms = {module.parent for module in modules()}
    assert PACKAGE in rooms
    assert [name_of(room) for room in sorted(rooms) if not (room / "__init__.py").is_file()] == []


SUPPRESSION = re.compile(r"#\s*(?:noqa|type:\s*ignore|pyright:\s*ignore|pragma:\s*no cover)(?P<rest>.*)")
BEFORE_REASON = re.compile(r"^(?::\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*|\[[\w\-, ]+\])?")


def test_every_suppression_carries_a_reason() -> None:
    bare = []
    for module in [*modules(), *modules(ROOT / "tests"), *modules(ROOT / "bench"), *modules(ROOT / "examples")]:
        for number, line in enumerate(module.read_text(encoding="utf-8").splitlines(), start=1):
            found = SUPPRESSION.search(line)
            if found and not re.search(r"\w{2,}", BEFORE_REASON.sub("", found["rest"].strip())) and module != Path(__file__):
                bare.append(f"{name_of(module)}:{number}")
    assert bare == [], "write why, after the suppression: `# noqa: S104 - the test listens on purpose`"
