"""Notes that a person takes out of a memory, and puts back."""

import os
from pathlib import Path

import pytest

from curtainwall.model import NotFound, Workspace
from curtainwall.tools import CannotDo
from curtainwall.tools.memory import MOST_BYTES, Note, Notebook, NoteRemoval
from tests.support.covers import covers

PROJECT, OWN = Workspace(path="/srv/a project", own=False), Workspace(path="/srv/own", own=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


@pytest.fixture
def notebook(root: Path) -> Notebook:
    made = Notebook(root)
    for at, place in enumerate((PROJECT, PROJECT, PROJECT, OWN), 1):
        made.add(place, Note(f"fact {at}", f"c{at}", at, "s1", "builtin"))
    return made


def forget(root: Path, name: str, *, for_good: bool = False) -> None:
    NoteRemoval(root).forget(name, Notebook(root).all_pages(), 7, for_good=for_good)


def recalled(root: Path) -> list[str]:
    return [each.text for page in Notebook(root).all_pages() for each in page.notes]


@covers("tools.a-note-is-forgotten-and-put-back")
def test_what_is_forgotten_is_recalled_no_more_and_comes_back_as_it_was(root: Path, notebook: Notebook) -> None:
    path = notebook.path_for(PROJECT)
    before = path.read_bytes()
    for name in ("c2", "c3", "c1"):
        forget(root, name)
    assert recalled(root) == ["fact 4"]
    assert [it.name for it in NoteRemoval(root).forgotten()] == ["c2", "c3", "c1"]
    assert [NoteRemoval(root).undo(name).name for name in (None, None, "c2")] == ["c1", "c3", "c2"]
    assert path.read_bytes() == before
    assert NoteRemoval(root).forgotten() == ()
    with pytest.raises(NotFound, match="nothing was forgotten"):
        NoteRemoval(root).undo()
    with pytest.raises(NotFound, match="no note `c2` was forgotten"):
        NoteRemoval(root).undo("c2")


def test_a_note_of_somebody_else_meanwhile_is_not_touched(root: Path, notebook: Notebook) -> None:
    forget(root, "c2")
    notebook.add(PROJECT, Note("a new fact", "c9", 9, "s1", "builtin"))
    NoteRemoval(root).undo()
    (page, _) = notebook.pages(PROJECT)
    assert sorted(each.text for each in page.notes) == ["a new fact", "fact 1", "fact 2", "fact 3"]
    assert page.skipped == ()


def test_a_note_that_is_there_again_is_not_there_twice(root: Path, notebook: Notebook) -> None:
    before = notebook.path_for(PROJECT).read_bytes()
    forget(root, "c2")
    notebook.path_for(PROJECT).write_bytes(before)
    NoteRemoval(root).undo()
    assert notebook.path_for(PROJECT).read_bytes() == before


def test_for_good_leaves_nothing_behind(root: Path, notebook: Notebook) -> None:
    forget(root, "c1")
    forget(root, "c1", for_good=True)
    forget(root, "c2", for_good=True)
    assert recalled(root) == ["fact 4", "fact 3"]
    assert not [path for path in root.rglob("*") if path.is_file() and ("fact 1" in path.read_text() or "fact 2" in path.read_text())]


def test_notes_by_hand_are_named_by_what_they_say(root: Path) -> None:
    general = root / "general.md"
    general.write_text("# Mine\n\nabove all\n\n## Style\nTabs, always.\n")
    before = general.read_bytes()
    above, style = (each.name for each in Notebook(root).all_pages()[0].notes)
    forget(root, above)
    forget(root, style)
    assert recalled(root) == []
    NoteRemoval(root).undo()
    NoteRemoval(root).undo()
    assert general.read_bytes() == before


def test_what_is_kept_is_bounded_and_private(root: Path, notebook: Notebook) -> None:
    long = Note("x" * (MOST_BYTES // 3), "d1", 1, "s1", "builtin")
    for _ in range(4):
        notebook.add(OWN, long)
        forget(root, long.name)
    kept = root / "forgotten.jsonl"
    assert kept.stat().st_size <= MOST_BYTES
    assert kept.stat().st_mode & 0o777 == 0o600
    assert len(NoteRemoval(root).forgotten()) == 2, "the oldest are gone"


def test_a_page_that_is_no_text_is_left_alone(root: Path, notebook: Notebook) -> None:
    path = notebook.path_for(PROJECT)
    path.write_bytes(path.read_bytes() + b"\n## Mine\n\xff\n")
    before = path.read_bytes()
    with pytest.raises(CannotDo, match="edit it by hand"):
        forget(root, "c1")
    assert path.read_bytes() == before
    assert NoteRemoval(root).forgotten() == ()


def test_nothing_is_put_back_outside_the_memory(root: Path) -> None:
    kept = '{"name": "c1", "file": "%s", "line": 1, "at": 1, "text": "## x"}'
    (root / "forgotten.jsonl").write_text(
        "\n".join(kept % file for file in ("../x.md", "/tmp/x.md", "projects/../../x.md")) + "\n[]\nno json\n"
    )
    assert NoteRemoval(root).forgotten() == ()
