"""Run the tests side by side, and the few that failed once more, one after the other: `python -m tests.support.second_look`.

Thousands of tests with hundreds of real processes meet on a small machine. A test that fails beside the others and passes alone is
named as unstable, which is work for somebody; one that fails twice, or more than a few at once, have failed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

MOST = 3
_NAMES = "CURTAINWALL_TEST_FAILURES"
_FAILED = pytest.ExitCode.TESTS_FAILED


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the name of a test that failed; of the processes of a run, only the first one writes."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ and (names := os.environ.get(_NAMES)):
        with Path(names).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")


def main(arguments: list[str]) -> int:
    """Return the exit code of the tests, after a second look where that makes sense."""
    with tempfile.TemporaryDirectory() as scratch:
        names = Path(scratch, "failures")
        names.touch()
        status = _run(["-p", __spec__.name, "-n", "auto", "--dist", "worksteal", *arguments], {_NAMES: str(names)})
        failed = list(dict.fromkeys(names.read_text(encoding="utf-8").splitlines()))
    if status != _FAILED or not 1 <= len(failed) <= MOST:
        return status
    print(f"\nA second look at {len(failed)} of them, alone:\n", flush=True)
    status = _run(["-n", "0", "--randomly-seed=last", *failed], {})
    if status == 0:
        print("\nUNSTABLE: failed beside the others, and passed alone:", *failed, sep="\n  ", flush=True)
    return status


def _run(arguments: list[str], environment: dict[str, str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], env=os.environ | environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
