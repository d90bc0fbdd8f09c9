"""Fixtures for every test: real parts, and a head line that says which of them are there."""

from collections.abc import Callable

import pytest

from tests.support.real_parts import REAL_PARTS, report, require


def pytest_report_header() -> list[str]:
    """Say what this run really ran on."""
    return ["real parts: " + ", ".join(report())]


@pytest.fixture(scope="session")
def real_part() -> Callable[[str], str]:
    """Return a function that gives a real part's version, or skips (fails when `CI=true`) where it is missing."""
    return lambda name: require(REAL_PARTS[name])


@pytest.fixture(scope="session")
def bubblewrap(real_part: Callable[[str], str]) -> str:
    """Return the version of a bubblewrap that can make namespaces here."""
    return real_part("bubblewrap")
