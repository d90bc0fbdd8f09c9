"""Ports stay small: whoever stands in for one side has few methods to write."""

import ast

import pytest

from tests.support.repository import PACKAGE, modules, tree_of

MOST_METHODS = 5
PORTS = [
    node
    for module in modules(PACKAGE / "model" / "ports")
    for node in tree_of(module).body
    if isinstance(node, ast.ClassDef) and "Protocol" in (base.id for base in node.bases if isinstance(base, ast.Name))
]


def test_there_are_ports_to_look_at() -> None:
    assert {"Log", "Gate", "Feed", "Agent"} <= {port.name for port in PORTS}


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.name)
def test_a_port_has_at_most_five_methods(port: ast.ClassDef) -> None:
    methods = [node.name for node in port.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert 1 <= len(methods) <= MOST_METHODS, methods
