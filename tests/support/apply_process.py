"""Applies 200 files back and forth in processes that are killed at one step after another, and checks what is left each time.

Run as `python -m tests.support.apply_process PLACE FIRST EVERY`. It prints how many processes were killed, and how many saves of a user
came between a kill and the next process.
"""

import hashlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from curtainwall.host.views.apply import apply_changes, apply_in_steps
from curtainwall.host.views.differences import STAGING
from curtainwall.host.views.overlay import OverlayView
from curtainwall.host.views.sealed import SealedContents
from curtainwall.model import AppliedChanges, ApplyStatus, ChangeKind, ChangeSet, FileChange, FileKind
from tests.support.views import Tree, inside, tree_of

FILES = 200
SAVE = b"what the user saved\n"


def prepare(project: Path) -> None:
    """Make a project of 200 files in ten directories."""
    for number in range(FILES):
        path = project / f"d{number % 10}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"old {number}\n")


def edit(view: Path) -> None:
    """Change each of the files, in one of several ways."""
    for number in range(FILES):
        path = view / f"d{number % 10}" / f"f{number}"
        match number % 8:
            case 0:
                path.unlink()
            case 1:
                path.rename(path.with_name(f"renamed{number}"))
            case 2:
                path.chmod(0o755)
            case 3:
                path.unlink()
                path.symlink_to("elsewhere")
            case 4:
                path.with_name(f"added{number}").write_text("added\n")
                path.write_text(f"changed {number}\n")
            case _:
                path.write_text(f"changed {number}\n")
    shutil.rmtree(view / "d9")
    (view / "d9").write_text("a file now\n")


def die_at(changes: ChangeSet, sealed: SealedContents, step: int) -> bool:
    """Apply in a process that is killed after a step; tell whether it got that far."""
    child = os.fork()
    if child == 0:
        for number, _ in enumerate(apply_in_steps(changes, sealed)):
            if number == step:
                os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def parts(change: FileChange, before: Tree, after: Tree) -> Iterator[tuple[str, tuple[object, object]]]:
    """Yield the paths of a change, each with what may be there."""
    for path in change.paths:
        yield path, (before.get(path), after.get(path))


def check_left(changes: ChangeSet, project: Path, before: Tree, after: Tree) -> None:
    """Require each file to be as before, as after, or on its way through the staging directory, and none to be anything else."""
    left = tree_of(project)
    staged = {each[2] for path, each in left.items() if path.startswith(STAGING)}
    for change in changes.changes:
        for path, allowed in parts(change, before, after):
            old = before.get(path)
            on_its_way = left.get(path) is None and old is not None and old[2] in staged
            assert left.get(path) in allowed or on_its_way, (path, left.get(path), allowed)
    untouched = {path for path in before if path in after and before[path] == after[path]}
    assert all(left[path] == before[path] for path in untouched)


def finish(changes: ChangeSet, sealed: SealedContents, project: Path, after: Tree, saved: str) -> AppliedChanges:
    """Apply again in a process that lives, and require every file to be as it was shown, or a conflict where the user saved."""
    result = apply_changes(changes, sealed)
    others = [file for file in result.files if file.status is not ApplyStatus.APPLIED]
    now = tree_of(project)
    if saved:
        assert now[saved][2] == SAVE, "the user's save is gone"
        assert [(file.path, file.status) for file in others] == [(saved, ApplyStatus.CONFLICT)]
        assert others[0].present is not None
        assert others[0].present.digest == hashlib.sha256(SAVE).hexdigest()
        now.pop(saved)
        after = {path: each for path, each in after.items() if path != saved}
    else:
        assert others == []
    assert now == after
    return result


def main(place: Path, first: int, every: int) -> None:
    """Kill and resume, forwards and backwards, until a step is reached that there is not."""
    project, state = place / "project", place / "state"
    project.mkdir()
    state.mkdir()
    prepare(project)
    view = OverlayView(str(project), state)
    edit(inside(view.enter()))
    after = tree_of(inside(view.enter()))
    view.close()
    before = tree_of(project)
    forwards = view.changes()
    assert len(forwards.changes) >= FILES
    kills = saves = 0
    step = first
    there = (before, after)
    changes = forwards
    while die_at(changes, view.sealed, step):
        kills += 1
        check_left(changes, project, *there)
        target = next(
            each.path for each in changes.changes[step % len(changes.changes) :] + changes.changes
            if each.kind is ChangeKind.MODIFIED and each.before is not None and each.before.kind is FileKind.FILE
        )  # fmt: skip
        saved = target if kills % 5 == 0 else ""
        if saved:
            draft = project / f"{saved}~"
            draft.write_bytes(SAVE)
            draft.replace(project / saved)
            saves += 1
        finish(changes, view.sealed, project, there[1], saved)
        if saved:
            (project / saved).write_bytes(there[1][saved][2])
            (project / saved).chmod(there[1][saved][1])
        changes, there, step = changes.inverse(), (there[1], there[0]), step + every
    print(kills, saves)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
