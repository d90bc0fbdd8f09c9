"""What facts say of a project while a call works on a view of it; here the view is a plain directory."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from curtainwall.facts import (
    PathRoots,
    Unclear,
    canonical_path,
    find_named,
    holds_what_runs,
    paths_in_revision,
    real_path,
    writes_what_runs,
)
from curtainwall.facts.directories import is_without_key
from curtainwall.facts.git.config import find_repository
from curtainwall.facts.git.objects import HEADS, commit_at, current_branch
from curtainwall.model import Entrance, ViewUse, working_in
from tests.support.views import plant


class World:
    """A project, a view of it that has other files, and a place beside both."""

    def __init__(self, root: Path) -> None:
        self.project, self.view, self.beside = root / "project", root / "view", root / "beside"
        for path in (self.project, self.view, self.beside):
            path.mkdir()
        self.roots = PathRoots(workspace=str(self.project), home=str(root))

    def path(self, text: str | Path) -> str:
        return canonical_path(str(text), self.roots)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path.resolve())
    root = os.open(world.view, os.O_RDONLY | os.O_DIRECTORY)
    with working_in(ViewUse(Entrance(str(world.project), root), lambda: None, lambda: None)):
        yield world
    os.close(root)


def test_paths_mean_what_the_view_has_and_keep_the_name_of_the_project(world: World) -> None:
    (world.project / "link").symlink_to(world.beside)
    (world.view / "file").write_text("")
    (world.view / "d").mkdir()
    (world.view / "into").symlink_to("d")
    (world.view / "absolute").symlink_to(world.project / "d")
    (world.view / "out").symlink_to("../beside")
    (world.beside / "back").symlink_to(world.project / "into")
    for text, real in {
        "file": "project/file",
        "link/x": "project/link/x",
        "into/x": "project/d/x",
        "absolute/../file": "project/file",
        "out/x": "beside/x",
        "out/back/x": "project/d/x",
        f"{world.beside}/back": "project/d",
        "..": ".",
        ".": "project",
        "../view/file": "view/file",
    }.items():
        assert world.path(text) == os.path.normpath(world.project.parent / real), text


def test_loops_and_files_in_the_way_are_refused_as_in_a_project(world: World) -> None:
    (world.view / "a").symlink_to("b")
    (world.view / "b").symlink_to("a")
    (world.view / "file").write_text("")
    with pytest.raises(Unclear, match="loop of links"):
        world.path("a/x")
    with pytest.raises(Unclear, match="not a directory"):
        world.path("file/x")


def test_directories_are_looked_through_in_the_view(world: World) -> None:
    plant(world.view, {"d/.env": "KEY=1\n", "d/x/.envrc": "", "bare/objects/x": "", "bare/refs/x": "", "c.pem": "-----BEGIN CERTIFICATE"})
    plant(world.project, {".env": "KEY=2\n"})
    found = find_named(str(world.project), lambda path: path.endswith(".env"))
    assert found.paths == {".env": f"{world.project}/d/.env"}
    assert is_without_key(f"{world.project}/c.pem")
    assert holds_what_runs(f"{world.project}/d")
    assert not holds_what_runs(f"{world.project}/bare/objects")
    assert writes_what_runs(f"{world.project}/bare/HEAD", str(world.project))


def test_a_repository_is_read_in_the_view(world: World) -> None:
    commit = "1" * 40
    plant(
        world.project,
        {".git/HEAD": "ref: refs/heads/main\n", ".git/objects/x": "", ".git/refs/x": "", ".git/config": "[a]\n\tb = project\n"},
    )
    plant(world.view, {".git/HEAD": "ref: refs/heads/side\n", ".git/objects/x": "", f".git/{HEADS}side": f"{commit}\n"})
    plant(world.view, {".git/config": "[a]\n\tb = view\n", "sub/x": ""})
    repository = find_repository(f"{world.project}/sub", str(world.project))
    assert repository is not None
    assert repository.directory == f"{world.project}/.git"
    assert [entry.value for entry in repository.entries] == ["view"]
    assert current_branch(repository) == "side"
    assert commit_at(repository, f"{HEADS}side") == commit
    assert paths_in_revision("HEAD:x", f"{world.project}/sub", str(world.project)) == (f"{world.project}/x", f"{world.project}/sub/x")


def test_a_pointer_to_a_repository_is_followed_in_the_view_and_not_out_of_it(world: World) -> None:
    for name in ("objects", "refs"):
        (world.beside / name).mkdir()
    (world.beside / "HEAD").write_text("")
    plant(world.view, {"real/HEAD": "", "real/objects/x": "", "real/refs/x": "", "sub/.git": "gitdir: ../linked\n", "out/.git": ""})
    (world.view / "linked").symlink_to(world.project / "real")
    repository = find_repository(f"{world.project}/sub", str(world.project))
    assert repository is not None
    assert repository.directory == f"{world.project}/real"
    for target in (str(world.beside), "../../beside"):
        (world.view / "out/.git").write_text(f"gitdir: {target}\n")
        with pytest.raises(Unclear, match="leads out of"):
            find_repository(f"{world.project}/out", str(world.project))
    assert real_path(f"{world.project}/linked/HEAD") == f"{world.project}/real/HEAD"
