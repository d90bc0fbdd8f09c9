"""A process that stays."""

import subprocess
import sys

_PROGRAM = """
import resource
from curtainwall.serve.service import open_many_files
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
open_many_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def _limits(soft: int, hard: int) -> list[int]:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM.format(soft=soft, hard=hard)], check=True, capture_output=True, text=True)
    return [int(each) for each in ran.stdout.split()]


def test_it_opens_as_many_files_as_it_may() -> None:
    assert _limits(256, 1024) == [1024, 1024]
    assert _limits(1024, 1024) == [1024, 1024]
