"""The signals that programs under test hear, however the tests themselves were started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT

INNER = """
import os, signal, subprocess, sys

def ignored(pid):
    line = next(line for line in open(f"/proc/{pid}/status") if line.startswith("SigIgn"))
    return {number for number in (signal.SIGINT, signal.SIGHUP) if int(line.split()[1], 16) >> (number - 1) & 1}

def test_a_program_that_is_started_hears_both():
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        assert ignored(child.pid) == set()
    finally:
        child.communicate()

def test_the_tests_live_through_a_hang_up():
    os.kill(os.getpid(), signal.SIGHUP)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_programs_hear_a_hang_up_also_where_nohup_has_the_tests_ignore_it(tmp_path: Path, workers: str) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p xdist -p tests.conftest\n")
    (tmp_path / "test_inner.py").write_text(INNER)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    pytest_ = (sys.executable, "-m", "pytest", "-n", workers, "--basetemp", str(tmp_path / "scratch"), "test_inner.py")
    command = ("sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", *pytest_)
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
