"""200 files are applied, and the process is killed at each of them: a resumed one finishes exactly what was shown."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.repository import ROOT


@pytest.mark.timeout(600)
@covers("views.applying-survives-a-kill")
@pytest.mark.parametrize("first", [0, 1])
def test_after_a_kill_at_any_file_every_file_is_as_shown_or_a_conflict(tmp_path: Path, first: int, bubblewrap: str) -> None:
    words = (sys.executable, "-m", "tests.support.apply_process", str(tmp_path.resolve()), str(first), "6")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    kills, saves = map(int, done.stdout.split())
    assert kills >= 90
    assert saves >= 15
