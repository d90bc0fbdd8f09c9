"""A second look at tests that failed, with tests of its own in a directory of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.second_look import MOST

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


def test_a_test_that_passes_alone_is_named_as_unstable_and_has_failed(tmp_path: Path) -> None:
    run = looked(tmp_path, ONCE, workers=1)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    assert run.stdout.endswith("UNSTABLE, failed beside the others and passed alone:\n  test_some.py::test_fails_once\n")
    assert "FAILED TWICE" not in run.stdout


def test_a_test_that_fails_twice_is_told_from_one_that_is_unstable(tmp_path: Path) -> None:
    run = looked(tmp_path, ONCE + ALWAYS.format("always"))
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "FAILED TWICE, beside the others and alone:\n  test_some.py::test_always\n" in run.stdout
    assert run.stdout.endswith("UNSTABLE, failed beside the others and passed alone:\n  test_some.py::test_fails_once\n")


def test_a_fixture_that_fails_once_fails_the_run(tmp_path: Path) -> None:
    fixture = ONCE.replace("def test_fails_once", "import pytest\n@pytest.fixture\ndef broken")
    run = looked(tmp_path, f"{fixture}\ndef test_of_it(broken): pass\n")
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert run.stdout.endswith("passed alone:\n  test_some.py::test_of_it\n")


@pytest.mark.parametrize(("number", "again"), [(MOST, True), (MOST + 1, False)])
def test_only_so_many_that_fail_are_looked_at_again(tmp_path: Path, number: int, *, again: bool) -> None:
    run = looked(tmp_path, "".join(ALWAYS.format(each) for each in range(number)))
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert ("second look" in run.stdout) is again
    assert f"{number} failed, 1 passed" in run.stdout


def test_a_run_without_failures_is_not_looked_at_again(tmp_path: Path) -> None:
    run = looked(tmp_path, "")
    assert run.returncode == pytest.ExitCode.OK
    assert "second look" not in run.stdout


def test_tests_that_cannot_be_read_are_not_looked_at_again(tmp_path: Path) -> None:
    run = looked(tmp_path, "import nothing_of_this_name\n")
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "second look" not in run.stdout
