"""Which files come with a push: read from the repository's own bytes, whatever they are packed as."""

import os
from pathlib import Path

import pytest

from curtainwall.facts import Push, find_push
from tests.support.git_server import git

URL = "https://git.example.org/ann/r"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository whose remote has one commit, with a secret in it."""
    where = Path(os.path.realpath(tmp_path)) / "r"
    git("init", "--quiet", "--initial-branch=main", str(where))
    git("remote", "add", "origin", URL, cwd=where)
    keep(where, "old.key", "src/a.py", "src/deep/b.py")
    git("update-ref", "refs/remotes/origin/main", "HEAD", cwd=where)
    return where


def keep(where: Path, *names: str, text: str = "1") -> None:
    for name in names:
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)
    git("add", "--all", cwd=where)
    git("commit", "--quiet", "--allow-empty", "-m", "next", cwd=where)


def pushed(where: Path, branch: str | None = None, remote: str = "origin") -> Push:
    push = find_push(str(where), remote, branch, is_secret=lambda path: path.endswith((".key", ".env")))
    assert push is not None
    return push


@pytest.mark.parametrize("packed", [False, True])
def test_only_what_the_remote_does_not_have_counts(repository: Path, *, packed: bool) -> None:
    def found(branch: str | None = None) -> tuple[str, ...]:
        if packed:
            git("repack", "-adfq", "--window=50", cwd=repository)
        push = pushed(repository, branch)
        assert not push.unseen
        return push.secrets

    keep(repository, "src/a.py", "src/deep/c.py", text="2")
    assert found() == ()
    git("branch", "other", cwd=repository)
    assert found("other") == (), "a new branch begins at one that the remote has"
    keep(repository, "src/deep/.env", ".env")
    assert found() == (".env", "src/deep/.env")
    git("rm", "-rq", ".env", "src/deep/.env", cwd=repository)
    keep(repository)
    assert found() == (".env", "src/deep/.env"), "what was taken away again leaves with the commits before"
    git("update-ref", "refs/remotes/origin/main", "HEAD", cwd=repository)
    assert found() == ()
    keep(repository, "old.key", text="another")
    assert found() == ("old.key",)


def test_a_merge_brings_what_neither_side_had(repository: Path) -> None:
    git("checkout", "-qb", "side", cwd=repository)
    keep(repository, "x.py")
    git("checkout", "-q", "main", cwd=repository)
    keep(repository, "y.py")
    git("merge", "-q", "--no-commit", "side", cwd=repository)
    (repository / "merged.key").write_text("1")
    git("add", "--all", cwd=repository)
    git("commit", "-qm", "merge", cwd=repository)
    assert pushed(repository).secrets == ("merged.key",)


def test_what_cannot_be_looked_through_says_so(repository: Path) -> None:
    assert pushed(repository, remote=URL).secrets == ("old.key",), "of a URL nothing is known"
    for _ in range(101):
        keep(repository)
    assert pushed(repository).unseen == "more than 100 commits"
    git("update-ref", "refs/remotes/origin/main", "HEAD", cwd=repository)
    assert pushed(repository).unseen == ""
    keep(repository, *(f"{number}/{inner}/x.py" for number in range(120) for inner in range(120)))
    assert pushed(repository).unseen.startswith("too many directories")


def test_a_directory_that_is_not_what_its_id_says_is_not_there(repository: Path) -> None:
    keep(repository, "src/deep/.env")
    tree = git("rev-parse", "HEAD:src/deep", cwd=repository).strip()
    other = git("rev-parse", "HEAD~1:src/deep", cwd=repository).strip()
    objects = repository / ".git/objects"
    forged = objects / tree[:2] / tree[2:]
    forged.chmod(0o600)
    forged.write_bytes((objects / other[:2] / other[2:]).read_bytes())
    assert pushed(repository).unseen
