"""Every conformance test runs on both disks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores import Disk, InMemory, OnDisk, Store


@pytest.fixture(params=["memory", "sqlite"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """Return a disk that is still empty."""
    fresh = InMemory() if request.param == "memory" else OnDisk(tmp_path / "home")
    yield fresh
    for store in fresh.opened:
        store.close()


@pytest.fixture
def store(disk: Disk) -> Store:
    """Return a store on that disk."""
    return disk.open()
