"""Applying: exactly what was shown, or a conflict with both sides; nothing that somebody saved meanwhile is lost."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from curtainwall.host.views.apply import apply_changes, apply_in_steps
from curtainwall.host.views.differences import STAGING
from curtainwall.host.views.sealed import SealedContents
from curtainwall.host.views.states import LIST, read_entry
from curtainwall.model import (
    AppliedChanges,
    AppliedFile,
    ApplyStatus,
    ChangeKind,
    ChangeSet,
    FileChange,
    FileKind,
    FileState,
)
from tests.support.covers import covers
from tests.support.views import tree_of

Change = Callable[..., FileChange]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def sealed(tmp_path: Path) -> SealedContents:
    return SealedContents(tmp_path / "sealed")


def now(project: Path, path: str, sealed: SealedContents) -> FileState | None:
    """Return what a project has at a path, and put it aside."""
    above = os.open((project / path).parent, LIST)
    try:
        entry = read_entry(above, Path(path).name, sealed)
        return None if entry is None else entry.state
    finally:
        os.close(above)


def content(sealed: SealedContents, text: str, mode: int = 0o644) -> FileState:
    kept = sealed.keep_bytes(text.encode())
    return FileState(kind=FileKind.FILE, digest=kept.digest, mode=mode, size=kept.size)


def written(project: Path, sealed: SealedContents, path: str, text: str, mode: int = 0o644) -> FileChange:
    """Return the change that writes a file."""
    before = now(project, path, sealed)
    kind = ChangeKind.ADDED if before is None else ChangeKind.MODIFIED
    return FileChange(path=path, kind=kind, before=before, after=content(sealed, text, mode))


def deleted(project: Path, sealed: SealedContents, path: str) -> FileChange:
    return FileChange(path=path, kind=ChangeKind.DELETED, before=now(project, path, sealed))


def applied(project: Path, sealed: SealedContents, *changes: FileChange) -> dict[str, AppliedFile]:
    result = apply_changes(ChangeSet(project=str(project), changes=changes), sealed)
    assert [file.path for file in result.files] == [change.path for change in changes]
    return {file.path: file for file in result.files}


def no_staging_in(project: Path) -> bool:
    return not [name for name in os.listdir(project) if name.startswith(STAGING)]


@covers("views.a-file-changed-meanwhile-is-a-conflict")
def test_a_file_that_is_not_what_was_shown_is_left_alone_and_both_sides_are_reported(project: Path, sealed: SealedContents) -> None:
    (project / "a").write_text("shown")
    (project / "b").write_text("shown")
    changes = written(project, sealed, "a", "wanted"), written(project, sealed, "b", "wanted")
    (project / "a").write_text("the user's")
    result = applied(project, sealed, *changes)
    assert (project / "a").read_text() == "the user's"
    assert (project / "b").read_text() == "wanted"
    conflict = result["a"]
    assert (conflict.status, conflict.shown) == (ApplyStatus.CONFLICT, changes[0].before)
    assert conflict.present is not None
    assert conflict.present.digest == hashlib.sha256(b"the user's").hexdigest()
    assert result["b"].status is ApplyStatus.APPLIED
    assert no_staging_in(project)


@covers("views.a-file-changed-meanwhile-is-a-conflict")
@pytest.mark.parametrize("how", ["mode", "gone", "link", "directory", "taken", "deleted-changed", "parent-is-a-link", "not-empty"])
def test_whatever_else_is_there_is_a_conflict(project: Path, sealed: SealedContents, how: str, tmp_path: Path) -> None:
    (project / "d").mkdir()
    (project / "a").write_text("shown")
    (project / "d/b").write_text("b")
    change = written(project, sealed, "a", "wanted")
    match how:
        case "mode":
            (project / "a").chmod(0o600)
        case "gone":
            (project / "a").unlink()
        case "link":
            (tmp_path / "outside").write_text("shown")
            (project / "a").unlink()
            (project / "a").symlink_to(tmp_path / "outside")
        case "directory":
            (project / "a").unlink()
            (project / "a").mkdir()
        case "taken":
            change = written(project, sealed, "new", "wanted")
            (project / "new").write_text("the user's")
        case "deleted-changed":
            change = deleted(project, sealed, "a")
            (project / "a").write_text("the user's")
        case "parent-is-a-link":
            change = written(project, sealed, "d/b", "wanted")
            (project / "d").rename(tmp_path / "d")
            (project / "d").symlink_to(tmp_path / "d")
        case _:
            change = deleted(project, sealed, "d")
    before = tree_of(tmp_path)
    assert applied(project, sealed, change)[change.path].status is ApplyStatus.CONFLICT
    assert {path: each for path, each in tree_of(tmp_path).items() if not path.startswith("sealed")} == {
        path: each for path, each in before.items() if not path.startswith("sealed")
    }


def at_step(project: Path, sealed: SealedContents, change: FileChange, step: int, work: Callable[[], object]) -> AppliedFile:
    """Apply one change, and have something done after one of its steps on disk."""
    steps = apply_in_steps(ChangeSet(project=str(project), changes=(change,)), sealed)
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assert number >= step, "there was no such step"
            return end.value.files[0]
        number += 1
        if number == step:
            work()


def finished(steps: Generator[str, None, AppliedChanges]) -> AppliedChanges:
    """Let the rest of the steps run."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def save(path: Path, text: str) -> None:
    """Save as editors do: a new file that takes the name."""
    draft = path.with_name("draft~")
    draft.write_text(text)
    draft.replace(path)


@covers("views.a-file-changed-meanwhile-is-a-conflict")
@pytest.mark.parametrize("how", [save, Path.write_text], ids=["by-rename", "in-place"])
def test_a_file_saved_after_the_look_goes_back_when_it_comes_out(project: Path, sealed: SealedContents, how: Callable[..., object]) -> None:
    (project / "a").write_text("shown")
    change = written(project, sealed, "a", "wanted")
    result = at_step(project, sealed, change, 1, lambda: how(project / "a", "the user's"))
    assert result.status is ApplyStatus.CONFLICT
    assert tree_of(project) == {"a": ("file", 0o644, b"the user's")}


@covers("views.a-file-changed-meanwhile-is-a-conflict")
def test_of_two_saves_the_newest_stays_and_the_other_is_kept(project: Path, sealed: SealedContents) -> None:
    (project / "a").write_text("shown")
    change = written(project, sealed, "a", "wanted")
    steps = apply_in_steps(ChangeSet(project=str(project), changes=(change,)), sealed)
    next(steps)
    save(project / "a", "first save")
    next(steps)
    assert (project / "a").read_text() == "wanted"
    save(project / "a", "second save")
    assert finished(steps).files[0].status is ApplyStatus.CONFLICT
    assert tree_of(project) == {"a": ("file", 0o644, b"second save")}
    assert sealed.read(hashlib.sha256(b"first save").hexdigest()) == b"first save"


def test_a_file_that_is_deleted_while_it_is_exchanged_stays_deleted(project: Path, sealed: SealedContents) -> None:
    (project / "a").write_text("shown")
    result = at_step(project, sealed, written(project, sealed, "a", "wanted"), 1, (project / "a").unlink)
    assert result.status is ApplyStatus.CONFLICT
    assert tree_of(project) == {}


@covers("views.a-file-changed-meanwhile-is-a-conflict")
def test_a_file_that_another_program_has_open_for_writing_is_left_alone(project: Path, sealed: SealedContents) -> None:
    (project / "a").write_text("shown")
    writer = subprocess.Popen(
        [sys.executable, "-c", "import sys; f = open(sys.argv[1], 'a'); print('open', flush=True); input()", str(project / "a")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        for change in (written(project, sealed, "a", "wanted"), deleted(project, sealed, "a")):
            result = applied(project, sealed, change)["a"]
            assert (result.status, result.reason) == (ApplyStatus.CONFLICT, "another program has it open for writing")
            assert (project / "a").read_text() == "shown"
        writer.communicate(b"\n")
    assert applied(project, sealed, written(project, sealed, "a", "wanted"))["a"].status is ApplyStatus.APPLIED


@covers("views.a-file-changed-meanwhile-is-a-conflict")
def test_no_save_is_lost_while_the_same_file_is_applied_again_and_again(project: Path, sealed: SealedContents) -> None:
    path = project / "a"
    save(path, "shown")
    change = written(project, sealed, "a", "wanted")
    saver = subprocess.Popen([sys.executable, "-c", _SAVER, str(path)], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    raced = 0
    with saver:
        while saver.poll() is None and raced < 20:
            steps, count = apply_in_steps(ChangeSet(project=str(project), changes=(change,)), sealed), 0
            while True:
                try:
                    next(steps)
                    count += 1
                except StopIteration as end:
                    raced += count > 2 and end.value.files[0].status is ApplyStatus.CONFLICT
                    break
        out, _ = saver.communicate(b"\n")
    assert raced >= 20, "the saver was never between the look and the exchange"
    assert path.read_bytes() == out.splitlines()[-1]


# Every other save has the content that was shown, so that the look before the exchange often finds it.
_SAVER = """
import os, select, sys
path, number = sys.argv[1], 0
while not select.select([sys.stdin], [], [], 0)[0]:
    number += 1
    for text in ("shown", f"save {number}"):
        with open(path + "~", "w") as file:
            file.write(text)
        os.replace(path + "~", path)
print(text)
"""


@covers("views.what-was-shown-is-what-is-applied")
def test_contents_that_are_damaged_or_lost_are_not_applied(project: Path, sealed: SealedContents, tmp_path: Path) -> None:
    (project / "a").write_text("shown")
    changes = written(project, sealed, "a", "wanted"), written(project, sealed, "b", "wanted too")
    for change, work in zip(changes, (lambda path: path.write_text("WANTED"), Path.unlink), strict=True):
        assert change.after is not None
        work(tmp_path / "sealed" / change.after.digest)
    assert {file.status for file in applied(project, sealed, *changes).values()} == {ApplyStatus.REFUSED}
    assert tree_of(project) == {"a": ("file", 0o644, b"shown")}


@covers("views.never-applied")
@pytest.mark.parametrize(
    "path", [".git/hooks/post-commit", "sub/.git", ".GIT/config", "GIT~1/config", "../outside", "a//b", "/etc/x", STAGING + "x"]
)
def test_paths_that_are_no_files_of_the_project_are_refused(project: Path, sealed: SealedContents, path: str, tmp_path: Path) -> None:
    (project / ".git/hooks").mkdir(parents=True)
    (project / "sub").mkdir()
    change = FileChange(path=path, kind=ChangeKind.ADDED, after=content(sealed, "x"))
    before = tree_of(tmp_path)
    assert applied(project, sealed, change)[path].status is ApplyStatus.REFUSED
    assert tree_of(tmp_path) == before
    assert os.listdir(project / ".git/hooks") == []


@covers("views.never-applied")
@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6700])
def test_setuid_and_setgid_are_refused(project: Path, sealed: SealedContents, mode: int) -> None:
    assert applied(project, sealed, written(project, sealed, "a", "x", mode))["a"].status is ApplyStatus.REFUSED
    assert tree_of(project) == {}


@covers("views.never-applied")
@pytest.mark.parametrize("beside", ["-wal", "-journal"])
def test_a_database_that_is_in_use_is_refused_also_if_it_came_into_use_later(project: Path, sealed: SealedContents, beside: str) -> None:
    (project / "data.db").write_text("shown")
    changes = written(project, sealed, "data.db", "wanted"), deleted(project, sealed, "data.db")
    (project / f"data.db{beside}").write_text("")
    for change in changes:
        assert applied(project, sealed, change)["data.db"].status is ApplyStatus.REFUSED
    assert (project / "data.db").read_text() == "shown"


def test_a_hard_linked_file_gets_a_new_one_in_its_place_and_the_other_name_keeps_the_old(
    project: Path, sealed: SealedContents, tmp_path: Path
) -> None:
    (tmp_path / "other").write_text("shown")
    os.link(tmp_path / "other", project / "a")
    assert applied(project, sealed, written(project, sealed, "a", "wanted"))["a"].status is ApplyStatus.APPLIED
    assert (tmp_path / "other").read_text() == "shown"


def test_attributes_and_owner_of_a_file_stay(project: Path, sealed: SealedContents) -> None:
    (project / "a").write_text("shown")
    os.setxattr(project / "a", "user.note", b"mine")
    if os.geteuid() == 0:
        os.chown(project / "a", 65534, 65534)
    owner = (project / "a").stat().st_uid
    applied(project, sealed, written(project, sealed, "a", "wanted", 0o600))
    assert os.getxattr(project / "a", "user.note") == b"mine"
    assert ((project / "a").stat().st_uid, (project / "a").stat().st_mode & 0o777) == (owner, 0o600)


@covers("views.applying-survives-a-kill")
def test_a_directory_that_became_a_link_counts_as_applied_when_it_is_applied_again(project: Path, sealed: SealedContents) -> None:
    (project / "d").mkdir()
    for name in ("gone", "moved"):
        (project / f"d/{name}").write_text(name)
    kept = sealed.keep_bytes(b"elsewhere")
    changes = (
        FileChange(
            path="d", kind=ChangeKind.REPLACED, before=FileState(kind=FileKind.DIRECTORY, mode=(project / "d").stat().st_mode & 0o777),
            after=FileState(kind=FileKind.LINK, digest=kept.digest, size=kept.size),
        ),
        deleted(project, sealed, "d/gone"),
        FileChange(
            path="moved", source="d/moved", kind=ChangeKind.RENAMED, before=now(project, "d/moved", sealed),
            after=now(project, "d/moved", sealed),
        ),
    )  # fmt: skip
    for _ in range(2):
        assert {file.status for file in applied(project, sealed, *changes).values()} == {ApplyStatus.APPLIED}
        assert tree_of(project) == {"d": ("link", 0, b"elsewhere"), "moved": ("file", 0o644, b"moved")}
