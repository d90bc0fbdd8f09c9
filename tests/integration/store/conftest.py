"""A home on the real disk, closed at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores import OnDisk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[OnDisk]:
    """Return a home that is still empty."""
    fresh = OnDisk(tmp_path / "home")
    yield fresh
    for store in fresh.opened:
        store.close()
