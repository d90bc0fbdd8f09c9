"""A socket's file: whose it is, when it has its name, and that nobody else's file is ever taken away."""

import os
import socket
import stat
from pathlib import Path

import pytest

from curtainwall.host import SocketFile, is_served
from curtainwall.model import Broken, TryLater


def test_a_socket_has_its_mode_when_it_has_its_name_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "s"
    file = SocketFile.open(path, 0o660, os.getuid())
    with file.listener:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert [each.name for each in tmp_path.iterdir()] == ["s"]
        assert is_served(path)
        with pytest.raises(TryLater, match="another process serves"):
            SocketFile.open(path, 0o600, None)
    assert not is_served(path)
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_ours_any_more_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    file = SocketFile.open(path, 0o600, None)
    file.listener.close()
    newer = SocketFile.open(path, 0o600, None)
    file.remove()
    with newer.listener:
        assert is_served(path)


def test_what_cannot_be_a_socket_is_said_and_nothing_stays(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="too long"):
        SocketFile.open(tmp_path / ("x" * 200), 0o600, None)
    with pytest.raises(Broken, match="cannot be made"):
        SocketFile.open(tmp_path / "no" / "such", 0o600, None)
    (tmp_path / "directory").mkdir()
    with pytest.raises(Broken, match="cannot be made"):
        SocketFile.open(tmp_path / "directory", 0o600, None)
    assert [each.name for each in tmp_path.iterdir()] == ["directory"]


def test_a_socket_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))
    file = SocketFile.open(tmp_path / "s", 0o600, None)
    with file.listener:
        assert is_served(tmp_path / "s")
