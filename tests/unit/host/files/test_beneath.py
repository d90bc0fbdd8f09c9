import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from curtainwall.host import LinkInTheWay, delete_entry, make_directories, move_entry, open_beneath, replace_file
from curtainwall.model import Entrance, ViewUse, working_in


def content_of(path: Path, *, by_walking: bool) -> bytes:
    opened = open_beneath(str(path), os.O_RDONLY, by_walking=by_walking)
    with open(opened, "rb") as file:
        return file.read()


@pytest.fixture
def room(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


both_ways = pytest.mark.parametrize("by_walking", [False, True], ids=["openat2", "walk"])


@both_ways
def test_a_file_is_opened_along_its_real_path(room: Path, by_walking: bool) -> None:
    (room / "a").mkdir()
    (room / "a" / "b").write_bytes(b"here")
    assert content_of(room / "a" / "b", by_walking=by_walking) == b"here"


@both_ways
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_PATH])
def test_a_link_at_the_end_is_not_followed(room: Path, by_walking: bool, flags: int) -> None:
    (room / "secret").write_text("x")
    (room / "link").symlink_to("secret")
    with pytest.raises(LinkInTheWay):
        open_beneath(str(room / "link"), flags, by_walking=by_walking)


@both_ways
def test_a_link_on_the_way_is_not_followed(room: Path, by_walking: bool) -> None:
    (room / "real").mkdir()
    (room / "real" / "file").write_text("x")
    (room / "link").symlink_to("real")
    with pytest.raises(LinkInTheWay):
        open_beneath(str(room / "link" / "file"), os.O_RDONLY, by_walking=by_walking)


@both_ways
def test_what_is_missing_is_missing(room: Path, by_walking: bool) -> None:
    with pytest.raises(FileNotFoundError):
        open_beneath(str(room / "none" / "file"), os.O_RDONLY, by_walking=by_walking)


@both_ways
def test_the_root_can_be_opened(by_walking: bool) -> None:
    descriptor = open_beneath("/", os.O_RDONLY | os.O_DIRECTORY, by_walking=by_walking)
    try:
        assert os.path.samestat(os.fstat(descriptor), os.stat("/"))
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("path", ["", "relative", "/a/../b", "/a//b", "/a/.", "/a/", "/a\0b"])
def test_a_path_that_is_not_canonical_is_never_opened(path: str) -> None:
    with pytest.raises(ValueError, match="not canonical"):
        open_beneath(path, os.O_RDONLY)


def test_a_file_is_replaced_and_keeps_its_mode(room: Path) -> None:
    file = room / "script"
    file.write_text("old")
    file.chmod(0o751)
    replace_file(str(file), b"new")
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o751
    assert os.listdir(room) == ["script"]


def test_a_new_file_has_the_mode_that_the_user_wants(room: Path) -> None:
    old = os.umask(0o027)
    try:
        replace_file(str(room / "new"), b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((room / "new").stat().st_mode) == 0o640


def test_a_link_is_never_written_through_or_replaced(room: Path) -> None:
    (room / "target").write_text("old")
    (room / "link").symlink_to("target")
    with pytest.raises(LinkInTheWay):
        replace_file(str(room / "link"), b"new")
    assert (room / "target").read_text() == "old"
    assert (room / "link").is_symlink()


def test_writing_over_a_directory_or_a_pipe_is_refused(room: Path) -> None:
    (room / "directory").mkdir()
    os.mkfifo(room / "pipe")
    with pytest.raises(IsADirectoryError):
        replace_file(str(room / "directory"), b"x")
    with pytest.raises(OSError, match="not a regular file"):
        replace_file(str(room / "pipe"), b"x")


def test_only_new_files_where_only_new_ones_are_wanted(room: Path) -> None:
    replace_file(str(room / "a"), b"1", only_new=True)
    with pytest.raises(FileExistsError):
        replace_file(str(room / "a"), b"2", only_new=True)
    assert (room / "a").read_bytes() == b"1"


def test_directories_are_made_all_the_way_and_only_once(room: Path) -> None:
    assert make_directories(str(room / "a" / "b" / "c"))
    assert (room / "a" / "b" / "c").is_dir()
    assert not make_directories(str(room / "a" / "b" / "c"))


def test_directories_are_not_made_behind_a_link_or_a_file(room: Path) -> None:
    (room / "real").mkdir()
    (room / "link").symlink_to("real")
    (room / "file").write_text("x")
    with pytest.raises(LinkInTheWay):
        make_directories(str(room / "link" / "below"))
    with pytest.raises(NotADirectoryError):
        make_directories(str(room / "file" / "below"))
    assert os.listdir(room / "real") == []


def test_deleting_takes_the_link_and_leaves_what_it_leads_to(room: Path) -> None:
    (room / "target").write_text("x")
    (room / "link").symlink_to("target")
    delete_entry(str(room / "link"))
    assert os.listdir(room) == ["target"]


def test_directories_are_not_deleted(room: Path) -> None:
    (room / "directory").mkdir()
    with pytest.raises(IsADirectoryError):
        delete_entry(str(room / "directory"))


def test_moving_never_replaces(room: Path) -> None:
    (room / "a").write_text("a")
    (room / "b").write_text("b")
    with pytest.raises(FileExistsError):
        move_entry(str(room / "a"), str(room / "b"))
    move_entry(str(room / "a"), str(room / "c"))
    assert sorted(os.listdir(room)) == ["b", "c"]
    assert (room / "b").read_text() == "b"


def test_nothing_moves_through_a_link(room: Path) -> None:
    (room / "real").mkdir()
    (room / "link").symlink_to("real")
    (room / "a").write_text("a")
    with pytest.raises(LinkInTheWay) as told:
        move_entry(str(room / "a"), str(room / "link" / "a"))
    assert told.value.errno == errno.ELOOP
    assert (room / "a").exists()


def test_no_descriptor_is_left_open(room: Path) -> None:
    (room / "file").write_text("x")
    (room / "link").symlink_to("file")
    before = len(os.listdir("/proc/self/fd"))
    for by_walking in (False, True):
        with pytest.raises(LinkInTheWay):
            open_beneath(str(room / "link"), os.O_PATH, by_walking=by_walking)
        with pytest.raises(FileNotFoundError):
            open_beneath(str(room / "x" / "y"), os.O_RDONLY, by_walking=by_walking)
    with pytest.raises(LinkInTheWay):
        make_directories(str(room / "link" / "below"))
    replace_file(str(room / "file"), b"y")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def view(room: Path) -> Iterator[Path]:
    """Work on a view of `project`, which here is the plain directory `view`."""
    for name in ("project", "view", "beside"):
        (room / name).mkdir()
    root = os.open(room / "view", os.O_RDONLY | os.O_DIRECTORY)
    with working_in(ViewUse(Entrance(str(room / "project"), root), lambda: None, lambda: None)):
        yield room / "view"
    os.close(root)


@both_ways
def test_a_path_of_a_project_is_opened_in_the_view_that_is_worked_on(room: Path, view: Path, by_walking: bool) -> None:
    (room / "project" / "a").write_bytes(b"project")
    (view / "a").write_bytes(b"view")
    (room / "beside" / "a").write_bytes(b"beside")
    (view / "link").symlink_to(room / "project")
    (view / "out").symlink_to("../beside")
    assert content_of(room / "project" / "a", by_walking=by_walking) == b"view"
    assert content_of(room / "beside" / "a", by_walking=by_walking) == b"beside"
    for path in ("link/a", "out/a", "out"):
        with pytest.raises(LinkInTheWay):
            content_of(room / "project" / path, by_walking=by_walking)
    opened = open_beneath(str(room / "project"), os.O_PATH, by_walking=by_walking)
    assert os.path.samestat(os.fstat(opened), view.stat())
    os.close(opened)


def test_changes_of_a_project_are_made_in_the_view_that_is_worked_on(room: Path, view: Path) -> None:
    project = room / "project"
    (view / "out").symlink_to(room / "beside")
    (room / "beside" / "theirs").write_text("theirs")
    replace_file(str(project / "a"), b"a")
    assert make_directories(str(project / "d/e"))
    assert not make_directories(str(project))
    move_entry(str(project / "a"), str(project / "d/e/a"))
    move_entry(str(room / "beside" / "theirs"), str(project / "mine"))
    delete_entry(str(project / "mine"))
    for change in (lambda: replace_file(str(project / "out/x"), b"x"), lambda: make_directories(str(project / "out/x"))):
        with pytest.raises(LinkInTheWay):
            change()
    assert sorted(path.name for path in view.rglob("*")) == ["a", "d", "e", "out"]
    assert not [*project.iterdir()]


def test_a_project_whose_view_is_worked_on_is_not_moved_deleted_or_replaced(room: Path, view: Path) -> None:
    project = room / "project"
    (view / "a").touch()
    for change in (
        lambda: replace_file(str(project), b"x"),
        lambda: delete_entry(str(project)),
        lambda: move_entry(str(project), str(room / "beside" / "x")),
        lambda: move_entry(str(project / "a"), str(project)),
    ):
        with pytest.raises(OSError, match="stays as it is") as fault:
            change()
        assert fault.value.errno == errno.EBUSY
    assert project.is_dir()
