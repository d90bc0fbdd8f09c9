"""Fixtures for every test: real parts, and a head line that says which of them are there."""

import os
from collections.abc import Callable

import pytest

from tests.support.real_parts import REAL_PARTS, report, require


def pytest_report_header() -> list[str]:
    """Say what this run really ran on."""
    return ["real parts: " + ", ".join(report())]


def pytest_xdist_auto_num_workers() -> int:
    """Have one worker more than processors: many tests wait for a container, a homeserver or a browser."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take long, so that no worker is left with one at the end; the order is random otherwise."""
    items.sort(key=lambda item: not item.nodeid.startswith(("tests/integration/", "tests/security/")))


@pytest.fixture(scope="session")
def real_part() -> Callable[[str], str]:
    """Return a function that gives a real part's version, or skips (fails when `CI=true`) where it is missing."""
    return lambda name: require(REAL_PARTS[name])


@pytest.fixture(scope="session")
def bubblewrap(real_part: Callable[[str], str]) -> str:
    """Return the version of a bubblewrap that can make namespaces here."""
    return real_part("bubblewrap")
