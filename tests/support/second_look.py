"""Run the tests side by side, and say more about those that failed: `python -m tests.support.second_look`.

Thousands of tests with hundreds of real processes share a small machine. A test that fails beside the others and passes alone has
failed all the same: there is a race, in the program or in the test. The second run, one test after the other, only tells such a test
from one that is simply broken; it never changes the result.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

MOST = 20
"""With more failures than this, running them again would take long and tell little."""

_NAMES = "CURTAINWALL_TEST_FAILURES"
_FAILED = pytest.ExitCode.TESTS_FAILED


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the name of a test that failed; of the processes of a run, only the first one writes."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ and (names := os.environ.get(_NAMES)):
        with Path(names).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")


def main(arguments: list[str]) -> int:
    """Return the exit code of the tests, after a second look at the failures where that makes sense."""
    status, failed = _run(["-n", "auto", "--dist", "worksteal", *arguments])
    if status == _FAILED and 1 <= len(failed) <= MOST:
        _look_again(failed)
    return status


def _look_again(failed: list[str]) -> None:
    """Run these tests alone, and print which of them failed twice and which passed."""
    print(f"\nA second look at the {len(failed)} that failed, alone (the run has failed in any case):\n", flush=True)
    status, again = _run(["-n", "0", "--randomly-seed=last", *failed])
    if status not in (pytest.ExitCode.OK, _FAILED):
        print("\nThe second look did not work; it says nothing about these:", *failed, sep="\n  ", flush=True)
        return
    if again:
        print("\nFAILED TWICE, beside the others and alone:", *again, sep="\n  ", flush=True)
    if unstable := [name for name in failed if name not in again]:
        print("\nUNSTABLE, failed beside the others and passed alone:", *unstable, sep="\n  ", flush=True)


def _run(arguments: list[str]) -> tuple[int, list[str]]:
    """Return the exit code of a run, and the names of the tests that failed in it."""
    with tempfile.TemporaryDirectory() as scratch:
        names = Path(scratch, "failures")
        names.touch()
        command = [sys.executable, "-m", "pytest", "-p", __spec__.name, *arguments]
        status = subprocess.run(command, env=os.environ | {_NAMES: str(names)}, check=False).returncode
        return status, list(dict.fromkeys(names.read_text(encoding="utf-8").splitlines()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
