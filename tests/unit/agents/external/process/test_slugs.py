"""Claude Code's names for projects, as the program itself writes them."""

from pathlib import Path

import pytest

from curtainwall.agents.external.process import project_slug, transcript_path

LONG = "/srv/" + "l" * 240


@pytest.mark.parametrize(
    ("project", "name"),
    [
        ("/home/ann/a.b.c", "-home-ann-a-b-c"),
        ("/home/ann/a_b", "-home-ann-a-b"),
        ("/home/ann/a b", "-home-ann-a-b"),
        ("/home/ann/grüße", "-home-ann-gr--e"),
        ("/home/ann/x😀y", "-home-ann-x--y"),
        ("/x" * 100, "-x" * 100),
    ],
)
def test_everything_but_ascii_letters_and_digits_is_a_dash_for_each_utf16_unit(project: str, name: str) -> None:
    assert project_slug(project) == name


def test_a_long_name_is_cut_and_told_apart_by_a_hash() -> None:
    name = project_slug(LONG)
    assert name.startswith(f"-srv-{'l' * 195}-")
    assert name != project_slug(LONG + "x")
    assert project_slug("/x" * 100 + "y").rpartition("-")[2] == "v6apo5"


def test_a_long_name_with_another_hash_is_found_by_its_beginning(tmp_path: Path) -> None:
    other = tmp_path / "projects" / f"{project_slug(LONG)[:200]}-other" / "c.jsonl"
    other.parent.mkdir(parents=True)
    other.touch()
    assert transcript_path(tmp_path, Path(LONG), "c") == other
    assert transcript_path(tmp_path, Path(LONG), "d").parent.name == project_slug(LONG)
