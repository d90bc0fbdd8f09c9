"""A second look at tests that failed, with tests of its own in a directory of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT

ONCE = """
def test_fails_once(request):
    note = request.path.with_suffix(".note")
    if not note.exists():
        note.touch()
        raise AssertionError
"""
ALWAYS = "def test_{0}(): raise AssertionError\n"


def looked(directory: Path, tests: str, workers: int = 0) -> subprocess.CompletedProcess[str]:
    (directory / "pytest.ini").write_text("[pytest]\naddopts = -p xdist -p randomly\n")
    (directory / "test_some.py").write_text(f"def test_passes(): pass\n{tests}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # which takes most of the time
    return subprocess.run(
        # A place of its own: in the usual one it would remove, at its end, whatever runs of other days have left there.
        [sys.executable, "-m", "tests.support.second_look", "-n", str(workers), "--basetemp", str(directory / "scratch"), "test_some.py"],
        cwd=directory,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_test_that_passes_alone_is_named_as_unstable(tmp_path: Path) -> None:
    run = looked(tmp_path, ONCE, workers=1)
    assert run.returncode == 0, run.stdout
    assert run.stdout.endswith("UNSTABLE: failed beside the others, and passed alone:\n  test_some.py::test_fails_once\n")


def test_a_test_that_fails_twice_has_failed(tmp_path: Path) -> None:
    run = looked(tmp_path, ONCE + ALWAYS.format("always"))
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "UNSTABLE" not in run.stdout
    assert "1 failed, 1 passed" in run.stdout


def test_many_that_fail_are_not_looked_at_again(tmp_path: Path) -> None:
    run = looked(tmp_path, "".join(ALWAYS.format(number) for number in range(4)))
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "second look" not in run.stdout
    assert "4 failed, 1 passed" in run.stdout


def test_tests_that_cannot_be_read_are_not_looked_at_again(tmp_path: Path) -> None:
    run = looked(tmp_path, "import nothing_of_this_name\n")
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "second look" not in run.stdout
