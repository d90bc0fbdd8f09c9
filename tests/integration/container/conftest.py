"""One Docker engine for the whole run, whoever of its workers comes first."""

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.docker_engine import DockerEngine, shared_engine

# Without workers every run is its own; the place is short, because sockets lie below it.
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(4))[:8]


@pytest.fixture(scope="session")
def docker_engine(real_part: Callable[[str], str]) -> Iterator[DockerEngine]:
    """Lend an engine of the tests' own, or skip (fail when `CI=true`) where none can be had."""
    real_part("docker")
    with shared_engine(Path(tempfile.gettempdir()) / f"cw-docker-{_RUN}") as engine:
        yield engine


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return a directory whose sockets have short names."""
    with tempfile.TemporaryDirectory(prefix="cw-") as name:
        yield Path(name)
