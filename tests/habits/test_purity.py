"""The pure rooms touch nothing: no file, no clock. The linter holds their imports; this holds their calls."""

import ast
import sys
from pathlib import Path

import pytest

from tests.support.repository import PACKAGE, PURE_ROOMS, modules, name_of, tree_of

# Methods of `Path` and of package resources that ask or change the disk. Names that a string, list or dict also has
# (`replace`, `rename` of our own) are left to the ban on `pathlib.Path` in the linter.
TOUCHES = frozenset(
    """
    absolute chmod cwd exists expanduser glob hardlink_to home is_dir is_file is_mount is_symlink iterdir lstat mkdir open read_bytes
    read_text readlink resolve rglob rmdir samefile stat symlink_to touch unlink walk write_bytes write_text
    """.split()
)
CLOCKS = frozenset({"now", "utcnow", "today"})
BUILTINS = frozenset({"open", "input", "print", "exec", "eval", "breakpoint", "__import__"})


def faults(tree: ast.AST) -> list[str]:
    """Return what in this tree reaches outside, as `line: name`."""
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in TOUCHES | CLOCKS:
                found.append(f"{node.lineno}: .{name}()")
            case ast.Call(func=ast.Name(id=name)) if name in BUILTINS:
                found.append(f"{node.lineno}: {name}()")
            case ast.ImportFrom(module="pathlib", names=names):
                found.extend(f"{node.lineno}: pathlib.{alias.name}" for alias in names if not alias.name.startswith("Pure"))
            case ast.Import(names=names):
                found.extend(f"{node.lineno}: import {alias.name}" for alias in names if alias.name in {"pathlib", "io", "os"})
            case _:
                pass
    return found


@pytest.mark.parametrize("module", [module for room in PURE_ROOMS for module in modules(PACKAGE / room)], ids=name_of)
def test_pure_rooms_do_no_input_or_output(module: Path) -> None:
    assert faults(tree_of(module)) == [], "take the time or the content as a parameter"


@pytest.mark.parametrize(
    "code",
    [
        "Path('x').read_text()",
        "files(pkg).joinpath('a').open()",
        "open('x')",
        "datetime.now(UTC)",
        "from pathlib import Path",
        "import pathlib",
        "here.exists()",
    ],
)
def test_the_scan_finds_what_it_is_for(code: str) -> None:
    assert faults(ast.parse(code))


def test_the_model_knows_the_standard_library_and_pydantic_alone() -> None:
    allowed = sys.stdlib_module_names | {"pydantic", "pydantic_core", "curtainwall"}
    strangers = []
    for module in modules(PACKAGE / "model"):
        for node in ast.walk(tree_of(module)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            strangers += [f"{name_of(module)}: {name}" for name in names if name.partition(".")[0] not in allowed]
    assert strangers == []
