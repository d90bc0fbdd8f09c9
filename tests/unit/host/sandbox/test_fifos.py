import os
import socket
from pathlib import Path

import pytest

from curtainwall.host import MOST_FIFOS, TooManyFifos, find_fifos


def test_pipes_are_found_at_any_depth_and_sockets_where_they_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "a/b/pipe")
    (tmp_path / "link").symlink_to("a/b/pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("a/socket")
    assert find_fifos(str(tmp_path)) == (str(tmp_path / "a/b/pipe"),)
    assert set(find_fifos(str(tmp_path), sockets=True)) == {str(tmp_path / "a/b/pipe"), str(tmp_path / "a/socket")}


def test_more_than_can_be_hidden_are_refused(tmp_path: Path) -> None:
    for number in range(MOST_FIFOS):
        os.mkfifo(tmp_path / str(number))
    assert len(find_fifos(str(tmp_path))) == MOST_FIFOS
    os.mkfifo(tmp_path / "one more")
    with pytest.raises(TooManyFifos):
        find_fifos(str(tmp_path))
