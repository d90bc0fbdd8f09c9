"""Reversals: what is in the way of taking changes back, and what leads back from the present state all the same."""

import pytest

from curtainwall.model import ChangeKind, ChangeSet, FileChange, FileKind, FileState, PresentFile
from curtainwall.operations.reversal import after, paths_of, reverse
from tests.support.covers import covers

DIRECTORY = FileState(kind=FileKind.DIRECTORY, mode=0o755)


def file(digest: str, mode: int = 0o644) -> FileState:
    return FileState(kind=FileKind.FILE, digest=digest, mode=mode, size=1)


def link(target: str) -> FileState:
    return FileState(kind=FileKind.LINK, digest=target)


def wanted(*changes: FileChange) -> ChangeSet:
    return ChangeSet(project="/p", changes=changes)


def project(**states: FileState) -> dict[str, PresentFile]:
    """Return a project; `__` in a name stands for a slash."""
    paths = {name.replace("__", "/"): state for name, state in states.items()}
    names = {path: tuple(each[len(path) + 1 :] for each in paths if each.rpartition("/")[0] == path) for path in paths}
    return {path: PresentFile(state=state, names=names[path] if state.kind is FileKind.DIRECTORY else ()) for path, state in paths.items()}


MODIFY = FileChange(path="a", kind=ChangeKind.MODIFIED, before=file("2"), after=file("1"))
ADD = FileChange(path="d/a", kind=ChangeKind.ADDED, after=file("1"))
DELETE = FileChange(path="a", kind=ChangeKind.DELETED, before=file("2"))
MOVE = FileChange(path="d/a", source="a", kind=ChangeKind.RENAMED, before=file("2"), after=file("2"))
REMOVE = FileChange(path="d", kind=ChangeKind.DELETED, before=DIRECTORY)


@pytest.mark.parametrize(
    ("change", "present"),
    [
        (MODIFY, project(a=file("2"))),
        (MODIFY, project(a=file("1"))),
        (DELETE, project(a=file("2"))),
        (DELETE, project()),
        (ADD, project(d=DIRECTORY)),
        (ADD, project(d=DIRECTORY, d__a=file("1"))),
        (MOVE, project(d=DIRECTORY, a=file("2"))),
        (MOVE, project(d=DIRECTORY, d__a=file("2"))),
        (REMOVE, project(d=DIRECTORY)),
        (REMOVE, project(d=DIRECTORY.model_copy(update={"mode": 0o700}))),
    ],
)
def test_what_is_as_it_was_left_or_as_it_is_wanted_is_written_exactly(change: FileChange, present: dict[str, PresentFile]) -> None:
    for force in (False, True):
        reversal = reverse(wanted(change), present, force=force)
        assert (reversal.changes, reversal.obstacles) == (wanted(change), ())


@covers("undo.refused-after-edits")
@pytest.mark.parametrize(
    ("change", "present", "path", "is_forcible"),
    [
        (MODIFY, project(a=file("3")), "a", True),
        (MODIFY, project(a=file("2", 0o755)), "a", True),
        (MODIFY, project(), "a", True),
        (MODIFY, project(a=link("x")), "a", True),
        (MODIFY, project(a=DIRECTORY, a__b=file("1")), "a", False),
        (MODIFY, project(a=FileState(kind=FileKind.OTHER)), "a", False),
        (DELETE, project(a=file("3")), "a", True),
        (ADD, project(d=DIRECTORY, d__a=file("3")), "d/a", True),
        (ADD, project(), "d/a", True),
        (ADD, project(d=link("/etc")), "d/a", False),
        (ADD, project(d=file("1")), "d/a", False),
        (MOVE, project(d=DIRECTORY, a=file("3")), "a", True),
        (MOVE, project(d=DIRECTORY), "a", True),
        (MOVE, project(d=DIRECTORY, a=file("2"), d__a=file("3")), "d/a", True),
        (REMOVE, project(d=DIRECTORY, d__mine=file("1")), "d", False),
        (REMOVE, project(d=file("1")), "d", True),
    ],
)
def test_whatever_is_in_the_way_is_named(change: FileChange, present: dict[str, PresentFile], path: str, is_forcible: bool) -> None:
    reversal = reverse(wanted(change), present, force=False)
    assert reversal.changes == wanted(change)
    assert [(obstacle.path, obstacle.is_forcible) for obstacle in reversal.obstacles] == [(path, is_forcible)]
    forced = reverse(wanted(change), present, force=True).changes
    assert bool(forced.changes) == is_forcible
    # INVARIANT: what is written over is what the project has, and so it was shown.
    for each in forced.changes:
        assert each.before == (present[each.path].state if each.path in present else None)


@covers("undo.forced")
def test_forced_it_leads_from_the_present_state_to_the_wanted_one() -> None:
    moved = reverse(wanted(MOVE), project(a=file("3")), force=True).changes
    assert [(change.path, change.kind) for change in moved.changes] == [
        ("a", ChangeKind.DELETED),
        ("d", ChangeKind.ADDED),
        ("d/a", ChangeKind.ADDED),
    ]
    assert reverse(wanted(MODIFY), project(a=link("x")), force=True).changes.changes[0].kind is ChangeKind.REPLACED
    mode = reverse(wanted(MODIFY), project(a=file("1", 0o755)), force=True).changes.changes[0]
    assert (mode.kind, mode.before, mode.after) == (ChangeKind.MODE, file("1", 0o755), file("1"))


def test_a_directory_goes_with_everything_that_goes() -> None:
    inner = FileChange(path="d/a", kind=ChangeKind.DELETED, before=file("1"))
    present = project(d=DIRECTORY, d__a=file("1"))
    assert reverse(wanted(REMOVE, inner), present, force=False).obstacles == ()
    back = FileChange(path="d", kind=ChangeKind.REPLACED, before=file("9"), after=DIRECTORY)
    assert reverse(wanted(back, ADD), project(d=file("9")), force=False).obstacles == ()


def test_two_steps_are_compared_one_after_the_other() -> None:
    present = project(d=DIRECTORY, d__a=file("3"))
    last = wanted(FileChange(path="d/a", kind=ChangeKind.MODIFIED, before=file("3"), after=file("2")))
    first = wanted(REMOVE, FileChange(path="d/a", kind=ChangeKind.DELETED, before=file("2")))
    assert paths_of(last, first) == ("d", "d/a")
    assert reverse(first, present, force=False).obstacles
    now = after(present, last)
    assert reverse(first, now, force=False).obstacles == ()
    assert after(now, first) == {}
