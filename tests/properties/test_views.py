"""What a change set shows is what applying it makes: the tree of the view; and its inverse makes the tree that was there before."""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curtainwall.host.views.apply import apply_changes
from curtainwall.host.views.copy import CopyView
from curtainwall.host.views.overlay import OverlayView
from curtainwall.model import ApplyStatus, ChangeSet
from tests.support.covers import covers
from tests.support.views import inside, plant, tree_of

NAMES = ("a", "b", "c,d", "e:f\n")
CONTENTS = (b"", b"one\n", b"two\n", b"\0\1binary")
MODES = (0o644, 0o755, 0o600)
START = {
    "a/a": "one\n", "a/b": "in a\n", "a/c,d/a": "deep\n", "b": "a file\n", "c,d/a/a": "two\n", "c,d/a/b": "deeper\n", "c,d/b": "in c\n",
    "e:f\n": "named\n", "a/e:f\n/b": "one\n",
}  # fmt: skip

there = st.sampled_from([*START, "a", "a/c,d", "c,d", "c,d/a", "a/e:f\n"])
paths = st.one_of(there, st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join))
edits = st.one_of(
    st.tuples(st.just("write"), paths, st.sampled_from(CONTENTS)),
    st.tuples(st.just("append"), there, st.sampled_from(CONTENTS[1:])),
    st.tuples(st.just("delete"), there),
    st.tuples(st.just("mkdir"), paths),
    st.tuples(st.just("move"), there, paths),
    st.tuples(st.just("move"), there, there),
    st.tuples(st.just("chmod"), paths, st.sampled_from(MODES)),
    st.tuples(st.just("link"), paths, st.sampled_from(("a", "../b", "/etc/passwd", "nowhere"))),
    st.tuples(st.just("hard-link"), paths, paths),
)


def edit(root: Path, steps: list[tuple]) -> None:
    """Make edits; those that are impossible are left out."""
    for what, name, *more in steps:
        path = root / name
        with suppress(OSError, shutil.Error):
            match what:
                case "write":
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if not path.is_symlink():
                        path.write_bytes(more[0])
                case "append":
                    if not path.is_symlink() and path.is_file():
                        with path.open("ab") as file:
                            file.write(more[0])
                case "delete":
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path)
                    else:
                        path.unlink()
                case "mkdir":
                    path.mkdir(parents=True)
                case "move":
                    # A directory there is replaced, unless it holds the other one.
                    target = root / more[0]
                    if target.is_dir() and not target.is_symlink() and not path.is_relative_to(target):
                        shutil.rmtree(target)
                    shutil.move(path, target)
                case "chmod":
                    if not path.is_symlink():
                        path.chmod(0o755 if path.is_dir() and more[0] != 0o600 else 0o700 if path.is_dir() else more[0])
                case "link":
                    path.symlink_to(more[0])
                case _:
                    if stat.S_ISREG(os.lstat(path).st_mode):
                        os.link(path, root / more[0], follow_symlinks=False)


View = OverlayView | CopyView


@pytest.fixture(scope="module", params=[OverlayView, CopyView], ids=["overlay", "copy"])
def view(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, bubblewrap: str) -> Iterator[tuple[Path, View]]:
    place = tmp_path_factory.mktemp("view").resolve()
    kind: Callable[[str, Path], View] = request.param
    project, state = place / "project", place / "state"
    project.mkdir()
    state.mkdir()
    made = kind(str(project), state)
    yield project, made
    made.close()


def applied(changes: ChangeSet, view: View) -> None:
    result = apply_changes(changes, view.sealed)
    assert [file for file in result.files if file.status is not ApplyStatus.APPLIED] == []


@covers("views.what-is-applied-is-the-view", "views.an-undo-restores-the-tree", "views.changes-are-deterministic")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(before=st.lists(edits, max_size=3), first=st.lists(edits, min_size=1, max_size=10), second=st.lists(edits, max_size=6))
def test_applying_a_change_set_makes_the_tree_of_the_view_and_its_inverse_the_old_one(
    view: tuple[Path, View], before: list[tuple], first: list[tuple], second: list[tuple]
) -> None:
    project, made = view
    made.discard()
    for path in project.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    plant(project, START)
    edit(project, before)
    old = tree_of(project)
    edit(inside(made.enter()), first)
    made.leave()
    entrance = made.enter()
    edit(inside(entrance), second)
    wanted = tree_of(inside(entrance))
    made.leave()
    assert tree_of(project) == old
    changes = made.changes()
    assert made.changes() == changes
    assert made.changes().digest == changes.digest
    assert bool(changes.changes) is (wanted != old)
    applied(changes, made)
    assert tree_of(project) == wanted
    applied(changes, made)
    assert tree_of(project) == wanted
    assert made.changes().changes == ()
    applied(changes.inverse(), made)
    assert tree_of(project) == old
    applied(changes.inverse().inverse(), made)
    assert tree_of(project) == wanted
    assert ChangeSet.model_validate_json(changes.model_dump_json()) == changes
