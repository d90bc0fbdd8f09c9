"""The files of a memory: added to by many at once, edited by people, bounded, and never a way to other files."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from curtainwall.model import Workspace
from curtainwall.tools import CannotDo
from curtainwall.tools.memory import MOST_BYTES, Note, Notebook
from tests.support.covers import covers

PROJECT, OTHER = Workspace(path="/srv/a project", own=False), Workspace(path="/srv/other/a project", own=False)
OWN = Workspace(path="/srv/own", own=True)


def note(text: str, at: int = 1) -> Note:
    return Note(text, f"c{at}", at, "s1", "builtin")


@pytest.fixture
def notebook(tmp_path: Path) -> Notebook:
    return Notebook(Path(os.path.realpath(tmp_path)))


def recalled(notebook: Notebook, workspace: Workspace, query: str) -> list[str]:
    return [match.note.text for match in notebook.search(workspace, query, 10)]


@covers("tools.a-note-is-recalled-in-its-project")
def test_a_projects_notes_stay_in_the_project_and_general_ones_are_for_all(notebook: Notebook) -> None:
    notebook.add(PROJECT, note("build with ninja"))
    notebook.add(OWN, note("build quietly"))
    assert recalled(notebook, PROJECT, "how to BUILD?") == ["build with ninja", "build quietly"]
    assert recalled(notebook, OTHER, "build") == ["build quietly"]
    assert recalled(notebook, OWN, "build") == ["build quietly"]


def test_notes_with_more_of_the_words_come_first_and_then_the_newest(notebook: Notebook) -> None:
    for at, text in enumerate(("red apple", "green apple", "green pear", "nothing"), 1):
        notebook.add(PROJECT, note(text, at))
    assert recalled(notebook, PROJECT, "green apple") == ["green apple", "green pear", "red apple"]
    assert recalled(notebook, PROJECT, "?!") == []


def test_files_are_ours_alone_and_hold_a_title(notebook: Notebook) -> None:
    path = notebook.add(PROJECT, note("x"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.read_text().startswith("# Notes on /srv/a project\n\n## ")
    assert path.name.startswith("a-project-")


def test_many_at_once_lose_nothing(notebook: Notebook) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: notebook.add(PROJECT, note(f"fact{at}", at)), range(1, 41)))
    (page, _) = notebook.pages(PROJECT)
    assert sorted(int(each.text.removeprefix("fact")) for each in page.notes) == list(range(1, 41))
    assert page.skipped == ()


def test_a_file_that_ends_in_the_middle_of_a_line_is_gone_on_with(notebook: Notebook) -> None:
    path = notebook.add(PROJECT, note("first", 1))
    path.write_text(path.read_text() + '\n## half\n<!-- curtainwall: {"id"')
    notebook.add(PROJECT, note("second", 2))
    (page, _) = notebook.pages(PROJECT)
    assert [each.text for each in page.notes] == ["first", "second"]
    assert len(page.skipped) == 1
    assert "no end" in page.skipped[0]


@covers("tools.a-memory-is-bounded")
def test_a_full_memory_takes_no_more_and_says_what_to_do(notebook: Notebook) -> None:
    path = notebook.add(PROJECT, note("x"))
    path.write_text("# full\n" + "y" * (MOST_BYTES - 20))
    before = path.read_bytes()
    with pytest.raises(CannotDo, match="the person can shorten"):
        notebook.add(PROJECT, note("more"))
    assert path.read_bytes() == before
    path.write_text("y" * (MOST_BYTES + 1))
    (page, _) = notebook.pages(PROJECT)
    assert "somebody shortens it" in page.skipped[0]


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_what_is_no_file_is_neither_read_nor_written(notebook: Notebook, tmp_path: Path, kind: str) -> None:
    path = notebook.path_for(OWN)
    target = tmp_path / "target"
    target.write_text("## secret\n")
    match kind:
        case "link":
            path.symlink_to(target)
        case "directory":
            path.mkdir()
        case _:
            os.mkfifo(path)
    with pytest.raises(CannotDo):
        notebook.add(OWN, note("x"))
    assert target.read_text() == "## secret\n"
    (page,) = notebook.pages(OWN)
    assert page.notes == ()
    assert page.skipped
