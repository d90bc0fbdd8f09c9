"""What a workspace tells agents is a plain small file at its top, and nothing else."""

import os
from pathlib import Path

from curtainwall.agents.builtin.prompt import compact_instructions, read_instructions
from curtainwall.model import Workspace
from tests.support.covers import covers


def found(where: Path) -> dict[str, str]:
    return {each.path: each.text for each in read_instructions(Workspace(path=str(where), own=False))}


def test_both_names_are_read_and_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("be kind")
    (tmp_path / "CLAUDE.md").write_bytes(b"caf\xe9")
    assert found(tmp_path) == {"AGENTS.md": "be kind", "CLAUDE.md": "caf\N{REPLACEMENT CHARACTER}"}


def test_nothing_there_and_nothing_in_it_are_nothing(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("")
    assert found(tmp_path) == {}
    assert found(tmp_path / "nowhere") == {}


@covers("agents.instructions-are-plain-files")
def test_a_link_a_pipe_a_directory_and_something_huge_are_no_instructions(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not for agents")
    for name, make in {
        "link": lambda at: at.symlink_to("/etc/passwd"),
        "near": lambda at: at.symlink_to(tmp_path / "secret"),
        "pipe": os.mkfifo,
        "directory": Path.mkdir,
        "huge": lambda at: at.write_bytes(b"x" * (64 * 1024 + 1)),
    }.items():
        where = tmp_path / name
        where.mkdir()
        make(where / "AGENTS.md")
        assert found(where) == {}, name


def test_the_workspace_itself_behind_a_link_has_none(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "AGENTS.md").write_text("hello")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert found(tmp_path / "link") == {}


def test_the_section_on_compacting_ends_with_the_next_heading_of_its_rank() -> None:
    text = "# All\nx\n## Compact Instructions\nkeep names\n### and\nnumbers\n## Other\ny"
    assert compact_instructions(text) == "keep names\n### and\nnumbers"
    assert compact_instructions("# compact instructions\nall of it") == "all of it"
    assert compact_instructions("nothing here\n## Compacting\nno") == ""
    assert compact_instructions("##### Compact Instructions   \n  a  \n# End") == "a"
