"""Fixtures for every test: real parts, and a head line that says which of them are there."""

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.dealing import dealt
from tests.support.real_parts import REAL_PARTS, report, require

if TYPE_CHECKING:
    from tests.support.synapse import Synapse

_LONG = ("tests/integration/", "tests/security/")

# A busy machine is no failure; `CI=true` chooses a profile of Hypothesis' own, which says the same.
settings.register_profile("busy", deadline=None, suppress_health_check=(HealthCheck.too_slow,))
if os.environ.get("CI") != "true":
    settings.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    """Have the programs that we start hear an interrupt and a hang-up, also where a shell or `nohup` has us ignore them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Whoever is started inherits that a signal is ignored, but no handler; so we live on, and they hear it.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or hasattr(config, "workerinput"):
        signal.signal(signal.SIGHUP, lambda number, frame: None)


def pytest_report_header() -> list[str]:
    """Say what this run really ran on."""
    return ["real parts: " + ", ".join(report())]


def pytest_xdist_auto_num_workers() -> int:
    """Have two workers more than processors: many tests wait for a container, a homeserver or a browser."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Read the tests without a look for garbage among them: all of it stays, and looking took nearly half of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let every worker begin with tests that take long, so that none is left with one at the end; the order is random otherwise."""
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = dealt(items, workers, lambda item: item.nodeid.partition("::")[0], lambda item: item.nodeid.startswith(_LONG))


@pytest.fixture(scope="session")
def real_part() -> Callable[[str], str]:
    """Return a function that gives a real part's version, or skips (fails when `CI=true`) where it is missing."""
    return lambda name: require(REAL_PARTS[name])


@pytest.fixture(scope="session")
def bubblewrap(real_part: Callable[[str], str]) -> str:
    """Return the version of a bubblewrap that can make namespaces here."""
    return real_part("bubblewrap")


@pytest.fixture(scope="session")
def homeserver(real_part: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Synapse]":
    """Run one homeserver for all tests of this process; those who use it ask for `synapse`."""
    real_part("synapse")
    # Start-up time: a run without Matrix needs none of its libraries.
    from tests.support.synapse import running

    with running(tmp_path_factory.mktemp("synapse")) as server:
        yield server


@pytest.fixture
def synapse(homeserver: "Synapse", monkeypatch: pytest.MonkeyPatch) -> "Synapse":
    """Return the homeserver, with people who were never seen there before; the house is `wall`, with this password."""
    monkeypatch.setenv("WALL_PASSWORD", "secret")
    homeserver.settle("wall", "ann", "bob", "eve")
    return homeserver
