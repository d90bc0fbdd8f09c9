"""A snapshot never outlives the fold that made it: the version names everything that a fold depends on."""

import ast
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

from pydantic import BaseModel

from curtainwall.model import AnyEvent
from curtainwall.session import FOLD_VERSION, KeptFold
from tests.support.repository import PACKAGE

FOLD = ("session/evolve.py", "session/open_work.py", "session/limits.py", "session/upcast.py", "session/blobs.py", "session/snapshot.py")
"""The modules with the functions of the fold. Those with the classes that it reads and holds are found by their annotations."""


def classes_in(annotation: object, seen: set[type]) -> Iterator[type]:
    """Yield the classes of ours that a value of a type can hold, at any depth."""
    for part in get_args(annotation):
        yield from classes_in(part, seen)
    if not isinstance(annotation, type) or annotation in seen or not annotation.__module__.startswith("curtainwall."):
        return
    seen.add(annotation)
    yield annotation
    if issubclass(annotation, BaseModel | tuple) or is_dataclass(annotation):
        for hint in get_type_hints(annotation).values():
            yield from classes_in(hint, seen)
    for base in annotation.__bases__:
        yield from classes_in(base, seen)


def modules_of_the_fold() -> list[Path]:
    """Return every module that can change what a log folds to, or how a fold is kept."""
    seen: set[type] = set()
    held = {kind for annotation in (KeptFold, AnyEvent) for kind in classes_in(annotation, seen)}
    sources = {Path(str(sys.modules[kind.__module__].__file__)) for kind in held}
    return sorted(sources | {PACKAGE / name for name in FOLD})


def told(node: object) -> str:
    """Return what a part of a module says, whatever its layout and comments, and the same under every version of Python."""
    match node:
        case ast.AST():
            parts = ((name, getattr(node, name, None)) for name in node._fields)
            return f"{type(node).__name__}({', '.join(f'{name}={told(part)}' for name, part in parts if part not in (None, []))})"
        case list():
            return f"[{', '.join(told(part) for part in node if not is_text(part))}]"
        case _:
            return repr(node)


def is_text(node: object) -> bool:
    """Tell whether a statement is nothing but a text, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def digest_of(sources: dict[str, str]) -> str:
    said = "\n".join(f"{name}: {told(ast.parse(source))}" for name, source in sorted(sources.items()))
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def current() -> dict[str, str]:
    return {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in modules_of_the_fold()}


def test_the_version_of_the_fold_is_that_of_its_modules() -> None:
    wanted = digest_of(current())
    assert wanted == FOLD_VERSION, f'the fold or what it holds has changed: write `FOLD_VERSION: Final = "{wanted}"` in fold_version.py'


def test_the_modules_of_the_fold_are_found() -> None:
    names = set(current())
    assert {*FOLD, "session/state.py", "model/subjects.py", "model/approvals.py", "model/events/calls.py", "model/frozen.py"} <= names
    assert "model/ports/store.py" not in names


def test_a_change_of_any_module_is_another_version_and_a_comment_is_not() -> None:
    sources = current()
    for name in sources:
        assert digest_of({**sources, name: sources[name] + "\nMORE = 1\n"}) != FOLD_VERSION
    assert digest_of({name: source + "\n# A comment.\n" for name, source in sources.items()}) == digest_of(sources)
