import os
from pathlib import Path

import pytest

from curtainwall.facts import holds_what_runs, writes_what_runs
from curtainwall.facts.directories import MOST_LOOKED_AT


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "p"
    root.mkdir()
    return root


def made(root: Path, *names: str) -> None:
    for name in names:
        if name.endswith("/"):
            (root / name).mkdir(parents=True, exist_ok=True)
        else:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("x")


@pytest.mark.parametrize(
    ("there", "written"),
    [
        ((), "x/HEAD"),
        ((), "HEAD"),
        ((), "HEAD/deep"),
        (("x/HEAD", "x/objects/"), "x/refs"),
        (("x/HEAD", "x/refs/"), "x/objects/pack/a"),
        (("x/HEAD",), "x/objects"),
        (("x/HEAD",), "x/Objects"),
        (("x/HEAD",), "x/commondir"),
        (("x/objects/", "x/refs/"), "x/head"),
        (("x/HEAD", "x/objects/", "x/refs/"), "x/config"),
        (("x/HEAD", "x/objects/", "x/refs/"), "x/hooks/pre-commit"),
        (("x/HEAD", "x/objects/", "x/refs/"), "x/a/b/c"),
        (("x/HEAD", "x/objects/", "x/refs/"), "x"),
        (("x/HEAD", "x/commondir"), "x/config"),
        (("HEAD", "objects/", "refs/"), "config"),
    ],
)
def test_a_write_that_makes_or_changes_a_git_directory_of_any_name_is_seen(project: Path, there: tuple[str, ...], written: str) -> None:
    made(project, *there)
    assert writes_what_runs(str(project / written), str(project))


@pytest.mark.parametrize(
    ("there", "written"),
    [
        ((), "x/config"),
        ((), "x/hooks/pre-commit"),
        ((), "src/head"),
        ((), "refs/objects"),
        (("x/objects/", "x/refs/"), "x/config"),
        (("x/HEAD",), "x/config"),
        (("HEAD", "objects/", "refs/"), "."),
    ],
)
def test_other_writes_are_as_their_names_say(project: Path, there: tuple[str, ...], written: str) -> None:
    made(project, *there)
    assert not writes_what_runs(os.path.normpath(project / written), str(project))


def test_a_project_in_a_git_directory_is_still_a_project(project: Path) -> None:
    made(project, "HEAD", "objects/", "refs/", "tree/")
    assert not writes_what_runs(str(project / "tree/config"), str(project / "tree"))
    assert writes_what_runs(str(project / "tree/config"), "/elsewhere")


@pytest.mark.parametrize("inside", [".envrc", "a/b/.git/config", ".github/x", "a/.vscode/tasks.json", "repo.git/config"])
def test_a_directory_holds_what_runs_at_any_depth(project: Path, inside: str) -> None:
    made(project, "x/plain", f"x/{inside}")
    assert holds_what_runs(str(project / "x"))


def test_a_directory_holds_git_directories_of_other_names(project: Path) -> None:
    made(project, "x/y/HEAD", "x/y/objects/", "x/y/refs/")
    assert holds_what_runs(str(project / "x"))
    assert holds_what_runs(str(project / "x/y"))


def test_a_file_a_link_and_a_plain_directory_hold_nothing(project: Path) -> None:
    made(project, "x/a/b.py", "y/.envrc")
    (project / "link").symlink_to(project / "y")
    assert not any(holds_what_runs(str(project / name)) for name in ("x", "x/a/b.py", "link", "missing"))


def test_what_is_too_big_to_look_through_counts_as_holding_it(project: Path) -> None:
    made(project, "x/")
    for number in range(MOST_LOOKED_AT + 1):
        os.mknod(project / "x" / str(number))
    assert holds_what_runs(str(project / "x"))


def test_what_is_too_deep_to_look_through_counts_as_holding_it(project: Path) -> None:
    made(project, "x/" * 130)
    assert holds_what_runs(str(project / "x"))
