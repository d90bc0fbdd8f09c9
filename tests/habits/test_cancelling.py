"""Whoever is cancelled ends: nothing in the program may swallow that."""

import ast

from tests.support.repository import modules, name_of, tree_of


def test_nobody_waits_in_a_way_that_can_swallow_a_cancellation() -> None:
    found: list[str] = []
    for path in modules():
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Attribute(value=ast.Name(id="asyncio"), attr="wait_for"):
                    found.append(f"{name_of(path)}:{node.lineno}")
                case _:
                    pass
    assert not found, "on Python 3.11 `asyncio.wait_for` hides a cancellation that comes along with a result; use `asyncio.timeout`"


def test_nobody_reads_a_cancellation_for_what_it_means() -> None:
    found: list[str] = []
    for path in modules():
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.ExceptHandler(type=ast.Attribute(attr="CancelledError"), name=str()):
                    found.append(f"{name_of(path)}:{node.lineno}")
                case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Attribute(attr="args")]):
                    found.append(f"{name_of(path)}:{node.lineno}")
                case _:
                    pass
    assert not found, "whether an agent left or was interrupted is told by a `Presence`, not by the message of a cancellation"
