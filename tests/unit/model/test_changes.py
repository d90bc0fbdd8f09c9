"""Change sets: one digest over everything, a part of one, and the inverse."""

import pytest

from curtainwall.model import ChangeKind, ChangeSet, FileChange, FileKind, FileState
from tests.support.covers import covers


def state(digest: str = "1", kind: FileKind = FileKind.FILE, mode: int = 0o644) -> FileState:
    return FileState(kind=kind, digest=digest, mode=mode, size=len(digest))


DIRECTORY = state("", FileKind.DIRECTORY, 0o755)
ADDED_DIRECTORY = FileChange(path="new", kind=ChangeKind.ADDED, after=DIRECTORY)
ADDED = FileChange(path="new/file", kind=ChangeKind.ADDED, after=state())
MODIFIED = FileChange(path="old", kind=ChangeKind.MODIFIED, before=state("1"), after=state("2"))
RENAMED = FileChange(path="new/name", source="name", kind=ChangeKind.RENAMED, before=state(), after=state())
DELETED = FileChange(path="x", kind=ChangeKind.DELETED, before=state("3"))
ALL = ChangeSet(project="/p", changes=(ADDED_DIRECTORY, ADDED, RENAMED, MODIFIED, DELETED))


@covers("views.a-change-set-has-one-digest")
@pytest.mark.parametrize(
    "change",
    [
        {"path": "other"},
        {"kind": ChangeKind.MODE},
        {"before": state("9")},
        {"after": state("9")},
        {"after": state("2", mode=0o755)},
        {"after": state("2", FileKind.LINK)},
        {"after": None},
        {"source": "elsewhere"},
        {"is_binary": True},
        {"is_hard_linked": True},
        {"leads_out": True},
        {"refusal": "no"},
        {"conflict": "no"},
        {"present": state()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_differs_changes_the_digest(change: dict[str, object]) -> None:
    one = ChangeSet(project="/p", changes=(MODIFIED,))
    assert ChangeSet(project="/p", changes=(MODIFIED.model_copy(update=change),)).digest != one.digest
    assert ChangeSet.model_validate_json(one.model_dump_json()).digest == one.digest


@covers("views.a-change-set-has-one-digest")
def test_another_project_or_one_change_more_is_another_digest() -> None:
    assert (
        len({ALL.digest, ChangeSet(project="/q", changes=ALL.changes).digest, ChangeSet(project="/p", changes=ALL.changes[1:]).digest}) == 3
    )


def test_a_part_has_the_directories_that_it_needs() -> None:
    assert [change.path for change in ALL.only({"new/file"}).changes] == ["new", "new/file"]
    assert [change.path for change in ALL.only({"new/name", "x"}).changes] == ["new", "new/name", "x"]
    assert [change.path for change in ALL.only({"old"}).changes] == ["old"]


def test_the_inverse_of_the_inverse_is_the_change_set() -> None:
    inverse = ALL.inverse()
    assert [(change.path, change.source, change.kind) for change in inverse.changes] == [
        ("name", "new/name", ChangeKind.RENAMED),
        ("new", "", ChangeKind.DELETED),
        ("new/file", "", ChangeKind.DELETED),
        ("old", "", ChangeKind.MODIFIED),
        ("x", "", ChangeKind.ADDED),
    ]
    assert inverse.inverse() == ALL
    assert [change.path for change in ALL.inverse({"old"}).changes] == ["old"]


def test_it_names_every_content_that_has_to_be_kept() -> None:
    assert ALL.contents == {"1", "2", "3"}
