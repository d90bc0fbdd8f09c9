import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.facts import Push, Unclear, find_push
from tests.support.covers import covers
from tests.support.git_server import git

URL = "https://git.example.org/ann/r"
OTHER_URL = "https://git.example.org/bob/r"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with three commits, of which the remote had the first when it was last looked at."""
    where = Path(os.path.realpath(tmp_path)) / "r"
    git("init", "--quiet", "--initial-branch=main", str(where))
    git("remote", "add", "origin", URL, cwd=where)
    commit(where, "first")
    git("update-ref", "refs/remotes/origin/main", "HEAD", cwd=where)
    commit(where, "second")
    commit(where, 'say "hello"')
    return where


def commit(where: Path, title: str, *words: str) -> str:
    git("commit", "--quiet", "--allow-empty", "-m", title, *words, cwd=where)
    return at(where)


def at(where: Path, ref: str = "HEAD") -> str:
    return git("rev-parse", ref, cwd=where).strip()


def found(where: Path, branch: str | None = None, remote: str = "origin") -> Push:
    push = find_push(str(where), remote, branch)
    assert push is not None
    return push


def test_a_push_tells_its_commit_what_that_says_and_how_many_are_new(repository: Path) -> None:
    tip, first = at(repository), at(repository, "origin/main")
    told = f'{tip[:12]} "say \\"hello\\"" to `main`: 2 commits more than {first[:12]}, which `origin` has'
    assert found(repository) == Push("main", tip, first, told)
    assert found(repository, "main") == found(repository)
    git("update-ref", "refs/remotes/origin/main", "HEAD", cwd=repository)
    assert found(repository).summary.endswith("to `main`: `origin` has it already")


@pytest.mark.parametrize("words", [("gc", "--quiet"), ("repack", "-adfq", "--window=50"), ("pack-refs", "--all"), ("prune-packed",)])
def test_commits_and_branches_are_found_packed_as_well(repository: Path, words: tuple[str, ...]) -> None:
    for number in range(20):
        commit(repository, f"one of many, {number}", "-m", "the same long text again " * 40)
    loose = found(repository)
    git(*words, cwd=repository)
    assert found(repository) == loose
    assert "22 commits" in loose.summary
    assert found(repository, "none").commit is None


def test_packs_are_read_in_every_form_that_git_gives_them(repository: Path) -> None:
    for number in range(20):
        commit(repository, f"one of many, {number}", "-m", "the same long text again " * 40)
    loose = found(repository)
    git("-c", "repack.useDeltaBaseOffset=false", "repack", "-adfq", "--window=50", cwd=repository)
    assert found(repository) == loose, "differences that name what they are to by its id"
    (pack,) = (repository / ".git/objects/pack").glob("*.pack")
    index = pack.with_suffix(".idx")
    index.unlink()
    git("index-pack", "--index-version=2,0x1", "-o", str(index), str(pack), cwd=repository)
    assert found(repository) == loose, "places beyond what four bytes can say"


def test_a_merge_counts_what_only_one_side_has(repository: Path) -> None:
    git("checkout", "--quiet", "-b", "side", "origin/main", cwd=repository)
    commit(repository, "aside")
    git("update-ref", "refs/remotes/origin/main", "main", cwd=repository)
    git("merge", "--quiet", "--no-ff", "-m", "joined", "main", cwd=repository)
    git("branch", "-f", "main", "HEAD", cwd=repository)
    assert ": 2 commits more than" in found(repository, "main").summary


def test_of_a_long_history_no_more_is_counted_than_people_wait_for(repository: Path) -> None:
    lines = "".join(
        f"commit refs/heads/long\ncommitter T <t@example.org> {1_700_000_000 + number} +0000\ndata 1\nx\n" for number in range(150)
    )
    (repository / "stream").write_text(lines)
    with (repository / "stream").open() as stream:
        git("fast-import", "--quiet", cwd=repository, stdin=stream)
    assert found(repository, "long").summary.endswith("to `long`: more than 100 commits at most; what the remote has is not known")


def test_a_branch_that_is_not_there_pushes_nothing(repository: Path, tmp_path: Path) -> None:
    assert found(repository, "none") == Push("none", None, None, "nothing: there is no branch `none` yet")
    for name in ("../../config", "a..b", "a.lock", ".a", "a//b", "HEAD"):
        assert found(repository, name).commit is None
    git("checkout", "--quiet", "--detach", cwd=repository)
    assert found(repository) == Push(None, None, None, "nothing: no branch is checked out")
    git("init", "--quiet", "--initial-branch=fresh", str(tmp_path / "new"))
    assert found(Path(os.path.realpath(tmp_path / "new"))).summary == "nothing: there is no branch `fresh` yet"
    assert find_push(os.path.realpath(tmp_path), "origin", None) is None


def test_a_worktree_has_a_branch_of_its_own(repository: Path) -> None:
    git("worktree", "add", "--quiet", "-b", "beside", "tree", cwd=repository)
    tip = commit(repository / "tree", "in the tree")
    assert (found(repository / "tree").branch, found(repository / "tree").commit) == ("beside", tip)
    assert found(repository).branch == "main"


def test_a_branch_that_stands_for_another_is_that_one(repository: Path) -> None:
    git("symbolic-ref", "refs/heads/old-name", "refs/heads/main", cwd=repository)
    assert found(repository, "old-name").commit == at(repository)
    git("symbolic-ref", "refs/heads/round", "refs/heads/round", cwd=repository)
    with pytest.raises(Unclear, match="without end"):
        found(repository, "round")


def test_what_the_remote_has_counts_only_where_it_is_read_and_pushed_at_one_place(repository: Path) -> None:
    assert found(repository, remote=URL).since is None
    assert "3 commits at most" in found(repository, remote=URL).summary
    git("config", "remote.origin.pushurl", "git@git.example.org:bob/r", cwd=repository)
    assert found(repository).since is None


def lie_loose(where: Path) -> None:
    tip, first = at(where), at(where, "origin/main")
    place = where / f".git/objects/{tip[:2]}/{tip[2:]}"
    place.unlink()
    place.write_bytes((where / f".git/objects/{first[:2]}/{first[2:]}").read_bytes())


def lie_by_graft(where: Path) -> None:
    git("replace", at(where), at(where, "origin/main"), cwd=where)


def lose(where: Path) -> None:
    first = at(where, "HEAD~1")
    (where / f".git/objects/{first[:2]}/{first[2:]}").unlink()


@pytest.mark.parametrize(
    ("trick", "told"),
    [
        (lie_loose, " to `main`: how many commits that are cannot be told here"),
        (lie_by_graft, ' "say \\"hello\\"" to `main`: 2 commits more than'),
        (lose, ' "say \\"hello\\"" to `main`: how many commits that are cannot be told here'),
    ],
)
def test_a_repository_cannot_lie_about_what_a_commit_says(repository: Path, trick: Callable[[Path], None], told: str) -> None:
    tip = at(repository)
    trick(repository)
    assert found(repository).summary.startswith(f"{tip[:12]}{told}")


def test_a_commit_whose_parent_is_no_id_is_not_followed(repository: Path) -> None:
    tree = git("rev-parse", "HEAD^{tree}", cwd=repository).strip()
    (repository / "odd").write_text(
        f"tree {tree}\nparent ../../../../../etc/passwd\nauthor T <t> 1 +0000\ncommitter T <t> 1 +0000\n\nodd\n"
    )
    odd = git("hash-object", "-t", "commit", "-w", "--literally", "odd", cwd=repository).strip()
    (repository / ".git/refs/heads/odd").write_text(f"{odd}\n")
    assert found(repository, "odd").summary == f"{odd[:12]} to `odd`: how many commits that are cannot be told here"


BASE = zlib.compress(b"x" * 1_000)
GROWS = zlib.compress(b"\xe8\x07" + b"\x80\x80\x20" + b"\xb0\xe8\x03" * 2_000)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"\x90\x3f" + BASE, 0),
        (b"\x90\x3f" + BASE + b"\x60" + bytes([len(BASE) + 2]) + GROWS, len(BASE) + 2),
        (b"\x60\x00" + GROWS, 0),
        (b"\x30" + BASE, 0),
        (b"\x60" + b"\xff" * 100_000, 0),
        (b"\x90\x3f" + BASE, 0x80000000),
    ],
    ids=[
        "another commit",
        "a difference that grows without end",
        "a difference to itself",
        "no commit",
        "a number without end",
        "a place beyond all files",
    ],
)
def test_a_pack_cannot_lie_about_a_commit(repository: Path, body: bytes, place: int) -> None:
    tip = at(repository)
    (repository / f".git/objects/{tip[:2]}/{tip[2:]}").unlink()
    where = repository / ".git/objects/pack/pack-1"
    where.with_suffix(".pack").write_bytes(body)
    counts = b"".join((1 if byte >= int(tip[:2], 16) else 0).to_bytes(4, "big") for byte in range(256))
    entry = bytes.fromhex(tip) + bytes(4) + place.to_bytes(4, "big") + b"\xff" * 8
    where.with_suffix(".idx").write_bytes(b"\xfftOc\x00\x00\x00\x02" + counts + entry)
    assert found(repository).summary.startswith(f"{tip[:12]} to `main`: how many commits that are cannot be told")


def test_broken_packs_are_no_commits(repository: Path) -> None:
    git("gc", "--quiet", cwd=repository)
    tip = at(repository)
    for kind in ("pack", "idx"):
        (pack,) = (repository / ".git/objects/pack").glob(f"*.{kind}")
        whole = pack.read_bytes()
        pack.chmod(0o600)
        for bad in (b"", whole[:40], whole[:8] + b"\xff" * (len(whole) - 8), bytes(len(whole))):
            pack.write_bytes(bad)
            assert found(repository).summary.startswith(f"{tip[:12]} to `main`: how many commits that are cannot be told")
        pack.write_bytes(whole)
    assert ": 2 commits" in found(repository).summary


def test_refs_that_cannot_be_read_are_refused(repository: Path) -> None:
    ref = repository / ".git/refs/heads/main"
    ref.write_text("not an id\n")
    with pytest.raises(Unclear, match="no commit's id"):
        found(repository)
    ref.unlink()
    os.mkfifo(ref)
    with pytest.raises(Unclear, match="ordinary size"):
        found(repository)
    ref.unlink()
    ref.symlink_to("/etc/passwd")
    with pytest.raises(Unclear, match="cannot be read"):
        found(repository)
    ref.unlink()
    (repository / ".git/packed-refs").symlink_to("/etc/passwd")
    with pytest.raises(Unclear, match="packed refs cannot be read"):
        found(repository)
    (repository / ".git/packed-refs").unlink()
    (repository / ".git/packed-refs").write_text("zz refs/heads/main\n")
    with pytest.raises(Unclear, match="as git writes them"):
        found(repository)
    (repository / ".git/config").write_text("[extensions]\n\trefstorage = reftable\n")
    with pytest.raises(Unclear, match="in a table"):
        found(repository)


@covers("git.sha256-and-reftable")
@pytest.mark.parametrize("words", [(), ("gc", "--quiet"), ("repack", "-adfq", "--window=50")])
def test_a_repository_with_sha256_ids_is_read_like_any_other(tmp_path: Path, words: tuple[str, ...]) -> None:
    where = Path(os.path.realpath(tmp_path)) / "r"
    git("init", "--quiet", "--initial-branch=main", "--object-format=sha256", str(where))
    git("remote", "add", "origin", URL, cwd=where)
    first = commit(where, "first")
    git("update-ref", "refs/remotes/origin/main", "HEAD", cwd=where)
    for name in ("src/main.py", "src/.env"):
        (where / name).parent.mkdir(exist_ok=True)
        (where / name).write_text("x")
        git("add", "--force", name, cwd=where)
        commit(where, name)
    if words:
        git(*words, cwd=where)
    tip = at(where)
    push = find_push(str(where), "origin", None, is_secret=lambda path: path.endswith(".env"))
    told = f'{tip[:12]} "src/.env" to `main`: 2 commits more than {first[:12]}, which `origin` has'
    assert (len(tip), push) == (64, Push("main", tip, first, told, ("src/.env",)))


@covers("git.sha256-and-reftable")
def test_a_branch_in_a_reftable_is_never_reported_as_none(tmp_path: Path) -> None:
    where = Path(os.path.realpath(tmp_path)) / "r"
    git("init", "--quiet", "--initial-branch=main", str(where))
    commit(where, "first")
    config = (where / ".git/config").read_text()
    # Git itself writes this name there, because the branch that is checked out is in the table.
    (where / ".git/HEAD").write_text("ref: refs/heads/.invalid\n")
    (where / ".git/config").write_text(f"{config}[extensions]\n\trefstorage = reftable\n")
    with pytest.raises(Unclear, match="in a table"):
        found(where)
    (where / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (where / ".git/config").write_text(f"{config}[extensions]\n\trefstorage = files\n")
    assert found(where).branch == "main"
