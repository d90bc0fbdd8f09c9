import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.host import ContentsChanged, Extent, Unbound, move_contents, read_contents

MUCH = Extent(entries=1_000, size=1_000_000, closed=True)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


def tree(where: Path) -> Path:
    (where / "in" / "deep").mkdir(parents=True)
    (where / "in" / "deep" / "file").write_text("deep")
    (where / "in" / "run").write_text("#!/bin/sh\n")
    (where / "in" / "run").chmod(0o750)
    (where / "in" / "link").symlink_to("deep/file")
    (where / "empty").mkdir()
    return where


def told(where: Path) -> list[tuple[str, int, str]]:
    """Return everything below a directory: its name, its permissions, and what it holds."""
    found: list[tuple[str, int, str]] = []
    for path in sorted(where.rglob("*")):
        holds = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else ""
        found.append((str(path.relative_to(where)), path.lstat().st_mode, holds))
    return found


def move(source: Path, destination: Path, extent: Extent = MUCH) -> bool:
    return move_contents(str(source), str(destination), read_contents(str(source), extent).digest, extent)


def test_a_tree_arrives_as_it_was_and_is_gone_where_it_was(room: Path) -> None:
    before = told(tree(room / "a"))
    assert move(room / "a", room / "b") is True
    assert told(room / "b") == before
    assert os.listdir(room) == ["b"]


def test_a_file_keeps_its_permissions_and_its_time(room: Path) -> None:
    (room / "a").write_text("x")
    (room / "a").chmod(0o640)
    os.utime(room / "a", ns=(1_000_000_000, 2_000_000_000))
    assert move(room / "a", room / "b") is True
    found = (room / "b").stat()
    assert (found.st_mode & 0o7777, found.st_mtime_ns) == (0o640, 2_000_000_000)


def test_nobody_else_s_rights_arrive(room: Path) -> None:
    (room / "a").write_text("x")
    (room / "a").chmod(0o4755)
    move(room / "a", room / "b")
    assert (room / "b").stat().st_mode & 0o7777 == 0o755


def test_a_link_is_moved_and_not_followed(room: Path) -> None:
    (room / "a").symlink_to("/etc/hostname")
    assert read_contents(str(room / "a"), MUCH).target == "/etc/hostname"
    assert move(room / "a", room / "b") is True
    assert os.readlink(room / "b") == "/etc/hostname"


@pytest.mark.parametrize(
    "change",
    [
        lambda a: (a / "in" / "deep" / "file").write_text("peed"),
        lambda a: (a / "in" / "deep" / "file").chmod(0o600),
        lambda a: (a / "empty").rmdir(),
        lambda a: (a / "empty").rename(a / "full"),
        lambda a: (a / "empty").chmod(0o700),
        lambda a: ((a / "in" / "link").unlink(), (a / "in" / "link").symlink_to("run")),
        lambda a: ((a / "in" / "link").unlink(), (a / "in" / "link").write_text("deep/file")),
    ],
)
def test_whatever_changes_changes_the_digest_and_nothing_is_moved(room: Path, change: Callable[[Path], object]) -> None:
    tree(room / "a")
    digest = read_contents(str(room / "a"), MUCH).digest
    change(room / "a")
    with pytest.raises(ContentsChanged):
        move_contents(str(room / "a"), str(room / "b"), digest, MUCH)
    assert os.listdir(room) == ["a"], "no half copy is left"


def test_names_and_contents_do_not_stand_in_for_each_other(room: Path) -> None:
    (room / "a").mkdir()
    (room / "b").mkdir()
    (room / "a" / "x\n('file', b'y'").write_text("")
    (room / "b" / "x").write_text("")
    (room / "b" / "y").write_text("")
    assert read_contents(str(room / "a"), MUCH).digest != read_contents(str(room / "b"), MUCH).digest


def test_what_is_there_already_stays(room: Path) -> None:
    (room / "a").write_text("a")
    (room / "b").write_text("b")
    with pytest.raises(FileExistsError):
        move(room / "a", room / "b")
    assert (room / "b").read_text() == "b"


def test_a_directory_is_not_moved_into_itself(room: Path) -> None:
    tree(room / "a")
    with pytest.raises(OSError, match="into itself"):
        move(room / "a", room / "a" / "in" / "a")
    assert sorted(os.listdir(room / "a" / "in")) == ["deep", "link", "run"]


@pytest.mark.parametrize("extent", [Extent(entries=5, size=1_000), Extent(entries=100, size=10)])
def test_too_much_is_not_bound(room: Path, extent: Extent) -> None:
    tree(room / "a")
    with pytest.raises(Unbound, match="too many"):
        read_contents(str(room / "a"), extent)


def test_a_directory_without_an_end_is_not_bound(room: Path) -> None:
    (room / "a" / "/".join(["d"] * 60)).mkdir(parents=True)
    with pytest.raises(Unbound, match="too many"):
        read_contents(str(room / "a"), MUCH)


def test_a_pipe_is_not_waited_for(room: Path) -> None:
    os.mkfifo(room / "a")
    with pytest.raises(Unbound, match="something besides"):
        read_contents(str(room / "a"), MUCH)


@pytest.mark.parametrize(
    ("target", "leads_out"),
    [
        ("file", False), ("./file", False), ("../x", False), ("../..", False), ("../in/deep", False), ("none", False),
        ("../../..", True), ("../../../a/in", True), ("/etc", True), ("deep/../../..", True), ("file/..", True),
    ],
)  # fmt: skip
def test_a_link_that_may_lead_out_of_its_tree_is_not_bound(room: Path, target: str, leads_out: bool) -> None:
    tree(room / "a")
    (room / "a" / "in" / "deep" / "link").symlink_to(target)
    if leads_out:
        with pytest.raises(Unbound, match="leads out"):
            read_contents(str(room / "a"), MUCH)
    else:
        read_contents(str(room / "a"), MUCH)
    assert read_contents(str(room / "a"), Extent(MUCH.entries, MUCH.size)).files == 2, "where it does not matter nobody looks"


def test_nothing_is_also_something(room: Path) -> None:
    assert read_contents(str(room / "a"), MUCH).kind == "nothing"
    assert read_contents(str(room / "none" / "a"), MUCH).kind == "nothing"


def test_a_copy_goes_to_another_disk(room: Path) -> None:
    other = Path(f"/dev/shm/curtainwall-test-{os.getpid()}")
    if not other.parent.is_dir() or other.parent.stat().st_dev == room.stat().st_dev:
        pytest.skip("there is one disk here")
    before = told(tree(room / "a"))
    other.mkdir()
    try:
        assert move(room / "a", other / "b") is True
        assert told(other / "b") == before
        assert move(other / "b", room / "c") is True
    finally:
        shutil.rmtree(other)
