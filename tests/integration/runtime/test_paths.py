"""What is on the way of a call, in the program as it runs."""

import json
import subprocess
import sys

import pytest

from tests.support.repository import ROOT


@pytest.mark.parametrize("path", ["call", "container", "team"])
def test_a_call_never_goes_back_to_the_package_that_introduced_the_others(path: str) -> None:
    words = [sys.executable, str(ROOT / "scripts" / "trace-path"), "--path", path, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    traced = json.loads(done.stdout)[path]
    assert {"runtime", "session", "policy", "store"} <= set(traced["packages"])
    assert "compose" not in traced["packages"], [file for file in traced["files"] if file.startswith("compose/")]
