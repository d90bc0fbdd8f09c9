"""Ports stay small: whoever stands in for one side has few methods to write.

A port is a Protocol in `model/ports`, or any other that crosses packages: one that another package imports, or has a class for. A Protocol
that only adds up others is as small as those, so what it inherits does not count.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.repository import PACKAGE, modules, tree_of

MOST_METHODS = 5
_PORTS = ("model", "ports")


@dataclass(frozen=True)
class Found:
    """A class, where it is, and what it has."""

    module: tuple[str, ...]
    name: str
    own: frozenset[str]
    bases: tuple[str, ...]
    methods: int
    is_protocol: bool

    @property
    def package(self) -> str:
        return self.module[0]


def classes(root: Path) -> Iterator[Found]:
    """Go through the classes of a source tree."""
    for path in modules(root):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                bases = tuple(_name(base) for base in node.bases)
                methods = [it.name for it in node.body if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)]
                yield Found(_module(root, path), node.name, frozenset(_members(node)), bases, len(methods), "Protocol" in bases)


def ports(root: Path) -> list[Found]:
    """Return the Protocols of a source tree that are in `model/ports`, or that another package imports or has a class for."""
    found = list(classes(root))
    protocols = [each for each in found if each.is_protocol]
    imported = set(_imports(root))
    named = {each.name: each for each in found}
    others = [(each.package, _all_of(each, named)) for each in found if not each.is_protocol]
    return [
        port
        for port in protocols
        if port.module[:2] == _PORTS
        or any(where == port.package and name == port.name and who != port.package for who, where, name in imported)
        or any(package != port.package and _all_of(port, named) <= members for package, members in others)
    ]


def _all_of(one: Found, named: Mapping[str, Found], below: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the members of a class with those that it inherits from classes of the tree."""
    seen = below | {one.name}
    above = (named[base] for base in one.bases if base in named and base not in seen)
    return one.own.union(*(_all_of(each, named, seen) for each in above))


def _imports(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield which package imports which name from which other one."""
    for path in modules(root):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith(f"{root.name}."):
                for alias in node.names:
                    yield _module(root, path)[0], node.module.split(".")[1], alias.name


def _module(root: Path, path: Path) -> tuple[str, ...]:
    return path.relative_to(root).with_suffix("").parts


def _name(base: ast.expr) -> str:
    match base:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _name(value)
        case _:
            return ""


def _members(node: ast.ClassDef) -> Iterator[str]:
    for it in node.body:
        match it:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case _:
                pass
        if isinstance(it, ast.FunctionDef) and it.name == "__init__":
            yield from (at.attr for at in ast.walk(it) if isinstance(at, ast.Attribute) and isinstance(at.ctx, ast.Store))


PORTS = ports(PACKAGE)


def test_there_are_ports_to_look_at() -> None:
    assert {"Log", "Gate", "Feed", "Agent"} <= {port.name for port in PORTS}, "those of the model"
    assert {"Stores", "LanguageModel", "CredentialSource", "AskDesk"} <= {port.name for port in PORTS}, "imported elsewhere"
    assert {"RuleTrials", "Deliveries", "Lifetimes", "ServerProcess", "AgentKind"} <= {port.name for port in PORTS}, "implemented elsewhere"


@pytest.mark.parametrize("port", PORTS, ids=lambda port: ".".join((*port.module, port.name)))
def test_a_port_has_at_most_five_methods(port: Found) -> None:
    assert port.methods <= MOST_METHODS, sorted(port.own)
    assert port.own or len(port.bases) > 1, "it says nothing"


PROTOCOL = """from typing import Protocol

class Six(Protocol):
    def a(self) -> None: ...
    def b(self) -> None: ...
    def c(self) -> None: ...
    async def d(self) -> None: ...
    @property
    def e(self) -> int: ...
    def f(self) -> None: ...
"""
SIX = """class All:
    def __init__(self) -> None:
        self.e = 1
    def a(self) -> None: ...
    def b(self) -> None: ...
    def c(self) -> None: ...
    async def d(self) -> None: ...
    def f(self) -> None: ...
"""


@pytest.mark.parametrize(
    ("where", "text", "is_port"),
    [
        ("other/uses.py", "from sample.one import Six\n", True),
        ("other/deep/uses.py", "from sample.one.folder.terms import Six\n", True),
        ("other/stands_in.py", SIX, True),
        ("other/half.py", SIX.replace("    def f(self) -> None: ...\n", ""), False),
        ("other/heir.py", f"{SIX.replace('    def f', '    def g')}\nclass Heir(All):\n    def f(self) -> None: ...\n", True),
        ("one/uses.py", f"from sample.one.folder.terms import Six\n\n{SIX}", False),
        ("model/ports/calls.py", PROTOCOL.replace("Six", "Seven"), False),
    ],
)
def test_a_protocol_is_a_port_where_another_package_imports_it_or_has_a_class_for_it(
    tmp_path: Path, where: str, text: str, is_port: bool
) -> None:
    root = tmp_path / "sample"
    for name, content in {"one/folder/terms.py": PROTOCOL, where: text}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")
    found = {port.name: port.methods for port in ports(root)}
    assert ("Six" in found) is is_port
    assert all(methods > MOST_METHODS for methods in found.values())
    assert ("Seven" in found) is where.startswith("model/ports")
