"""Where local agents work in these tests, and the program that stands in for theirs."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import fake_claude


@pytest.fixture
def short_path(bubblewrap: str) -> Iterator[Path]:
    """Return a directory whose sockets have short names, on a machine that can confine."""
    with tempfile.TemporaryDirectory(prefix="cw-") as name:
        yield Path(name)


@pytest.fixture
def fake(short_path: Path) -> Path:
    """Return a program that stands in for Claude Code and misbehaves on request."""
    program = short_path / "fake"
    shutil.copy(fake_claude.__file__, program)
    program.chmod(0o755)
    return program
