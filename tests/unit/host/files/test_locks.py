"""A lock that one holder has at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from curtainwall.host import lock_file


def test_a_lock_is_had_once_and_again_after_its_release(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = lock_file(path)
    assert first is not None
    assert lock_file(path) is None, "also within one process"
    first.release()
    first.release()
    again = lock_file(path)
    assert again is not None
    again.release()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        f"from pathlib import Path; from curtainwall.host import lock_file; held = lock_file(Path({str(path)!r})); print('held'); input()"
    )
    with subprocess.Popen((sys.executable, "-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert lock_file(path) is None
        holder.kill()
    assert lock_file(path) is not None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        lock_file(tmp_path / "lock")
