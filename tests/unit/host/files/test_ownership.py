"""Whose files are that root makes in a directory of somebody else."""

import os
from pathlib import Path

import pytest

from curtainwall.host import Extent, FileOwner, hand_over, make_directories, move_contents, read_contents, replace_file

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
EXTENT = Extent(entries=100, size=10_000)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    made = tmp_path / "theirs"
    made.mkdir()
    os.chown(made, 1234, 1235)
    return made


def owners(top: Path) -> set[tuple[int, int]]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in (top, *top.rglob("*"))}


def test_what_is_made_in_a_directory_belongs_to_its_owner(theirs: Path) -> None:
    replace_file(str(theirs / "new"), b"one")
    make_directories(str(theirs / "deep" / "deeper"))
    replace_file(str(theirs / "deep" / "deeper" / "new"), b"one")
    replace_file(str(theirs / "new"), b"two")
    assert owners(theirs) == {(1234, 1235)}


def test_what_is_moved_into_a_directory_belongs_to_its_owner(theirs: Path, tmp_path: Path) -> None:
    source = tmp_path / "ours"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "file").write_text("one")
    move_contents(str(source), str(theirs / "moved"), read_contents(str(source), EXTENT).digest, EXTENT)
    assert owners(theirs) == {(1234, 1235)}


def test_in_our_own_directory_everything_stays_ours(tmp_path: Path) -> None:
    replace_file(str(tmp_path / "new"), b"one")
    make_directories(str(tmp_path / "deep"))
    assert {path.stat().st_uid for path in tmp_path.iterdir()} == {0}


def test_a_file_that_is_replaced_keeps_its_owner(theirs: Path) -> None:
    (theirs / "old").write_text("one")
    os.chown(theirs / "old", 77, 78)
    replace_file(str(theirs / "old"), b"two")
    assert (theirs / "old").stat().st_uid == 77


def test_handing_over_takes_what_is_roots_and_follows_no_link(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("ours")
    (theirs / "inner").mkdir()
    (theirs / "inner" / "file").write_text("one")
    (theirs / "link").symlink_to(tmp_path / "outside")
    (theirs / "others").write_text("one")
    os.chown(theirs / "others", 77, 78)
    hand_over(theirs, FileOwner(1234, 1235))
    assert owners(theirs) == {(1234, 1235), (77, 78)}
    assert (tmp_path / "outside").stat().st_uid == 0
