"""Where local agents work in these tests, and the program that stands in for theirs."""

import shutil
from pathlib import Path

import pytest

from tests.support import fake_claude
from tests.support.processed import short_path


@pytest.fixture
def fake(short_path: Path) -> Path:
    """Return a program that stands in for Claude Code and misbehaves on request."""
    program = short_path / "fake"
    shutil.copy(fake_claude.__file__, program)
    program.chmod(0o755)
    return program


__all__ = ["fake", "short_path"]
