import os
from pathlib import Path

import pytest

from curtainwall.facts import Unclear, paths_in_revision


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "r"
    (root / ".git").mkdir(parents=True)
    (root / "sub").mkdir()
    return root


def named(repository: Path, text: str, directory: str = ".") -> set[str]:
    found = paths_in_revision(text, os.path.normpath(repository / directory), str(repository))
    return {os.path.relpath(path, repository) for path in found}


@pytest.mark.parametrize("text", ["HEAD", "main~2", "v1.0^{commit}", "HEAD@{1}", "a..b", "origin/main"])
def test_a_commit_names_no_path(repository: Path, text: str) -> None:
    assert named(repository, text) == set()


@pytest.mark.parametrize(
    "text",
    ["HEAD:.env", "HEAD~3:.env", ":.env", ":0:.env", "HEAD:./.env", "HEAD:a/../.env", "main^{/a:b}:.env", "HEAD:a..HEAD:.env",
     "HEAD:.env..HEAD:a", "HEAD:.env...x", "HEAD^{tree}:.env"],
)  # fmt: skip
def test_the_path_behind_a_colon_is_found_in_every_spelling(repository: Path, text: str) -> None:
    assert ".env" in named(repository, text)


def test_a_path_starts_at_the_top_and_a_dotted_one_where_git_is_started(repository: Path) -> None:
    assert named(repository, "HEAD:.env", "sub") >= {".env"}
    assert named(repository, "HEAD:./.env", "sub") == {"sub/.env"}
    assert named(repository, "HEAD:../.env", "sub") >= {".env"}
    assert named(repository, "HEAD:") == {"."}


def test_a_git_directory_that_git_might_pass_over_hides_nothing(repository: Path) -> None:
    (repository / "sub" / ".git").mkdir()
    assert named(repository, "HEAD:.env", "sub") == {".env", "sub/.env"}


def test_a_link_in_the_working_tree_says_nothing_about_a_commit(repository: Path) -> None:
    (repository / ".env").symlink_to(repository / "harmless")
    assert named(repository, "HEAD:.env") == {".env"}


def test_a_path_that_leaves_the_repository_is_refused(repository: Path) -> None:
    for text in ("HEAD:../x", "HEAD:../../etc/passwd", "HEAD:a/../../x"):
        with pytest.raises(Unclear, match="leaves the repository"):
            named(repository, text)
