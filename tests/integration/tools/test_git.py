"""The git tools with real git, in the confinement, and against git's own HTTP server."""

import asyncio
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from curtainwall.model import Mode, Prepared, ToolResult
from curtainwall.tools.git.network import GitTarget, ssh_command
from tests.support.git_server import GitServer, git, serving
from tests.support.machines import Machine, permit
from tests.support.remotes import one_remote

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine.at(tmp_path)


@pytest.fixture
def server(machine: Machine) -> Generator[GitServer]:
    (machine.root / "served").mkdir()
    with serving(machine.root / "served") as made:
        yield made


def filled(server: GitServer, name: str, tmp_path: Path, object_format: str = "sha1") -> Path:
    """Make a repository on the server with one commit, and return a clone to push more from."""
    server.make(name, object_format)
    where = tmp_path / "elsewhere"
    git("init", "--quiet", "--initial-branch=main", f"--object-format={object_format}", str(where))
    (where / "a.txt").write_text("one\n")
    git("add", ".", cwd=where)
    git("commit", "--quiet", "-m", "first", cwd=where)
    git("tag", "v1", cwd=where)
    git("push", "--quiet", server.url(name), "main", "v1", cwd=where)
    return where


def test_a_repository_from_nothing_to_a_commit(machine: Machine) -> None:
    machine.done("git.init", path="new/r")
    assert not (machine.workspace / "new/r/.git/hooks").exists()
    assert "already" in machine.fault("git.init", path="new/r")
    machine.done("git.set_working_dir", path="new/r")
    (machine.workspace / "new/r/a file").write_text("one\n")
    (machine.workspace / "new/r/-x").write_text("two\n")
    assert "?? -x" in machine.done("git.status")
    assert 'A  "a file"' in machine.done("git.add", files=["a file", "-x"])
    assert "+one" in machine.done("git.diff", staged=True)
    assert "2 files changed" in machine.done("git.commit", message="first\n\n--amend is no option here")
    shown = machine.done("git.show", ref="HEAD")
    assert "Author: Ann <ann@example.org>" in shown
    assert "--amend is no option here" in shown
    assert "nothing to commit" in machine.fault("git.commit", message="again")
    machine.done("git.branch", name="side")
    assert machine.done("git.branch").split() == ["*", "main", "side"]
    machine.done("git.checkout", ref="feature/x", create=True)
    (machine.workspace / "new/r/a file").write_text("three\n")
    assert "-one\n+three" in machine.done("git.diff", files=["a file"])
    machine.done("git.add", files=["a file"])
    machine.done("git.commit", message="second")
    assert machine.done("git.log", count=1).count("commit ") == 1
    machine.done("git.checkout", ref="main")
    assert (machine.workspace / "new/r/a file").read_text() == "one\n"
    assert "+three" in machine.done("git.diff", ref="feature/x~1..feature/x")


def test_the_working_directory_is_the_sessions_own(machine: Machine) -> None:
    machine.done("git.init", path="r")
    assert "in no git repository" in machine.fault("git.status")
    assert "not a directory" in machine.fault("git.set_working_dir", path="none")
    (machine.workspace / f"ghp_{'a1' * 18}").mkdir()
    assert "which the log does not keep" in machine.fault("git.set_working_dir", path=f"ghp_{'a1' * 18}")
    machine.done("git.set_working_dir", path="r")
    (machine.workspace / "r/sub").mkdir()
    machine.done("git.set_working_dir", path="sub")
    assert machine.prepare("git.status").arguments["path"] == str(machine.workspace / "r/sub")
    assert "No commits yet" in machine.done("git.status")


def test_a_user_without_a_name_commits_as_us(machine: Machine) -> None:
    (machine.root / "home/.gitconfig").unlink()
    machine.done("git.init", path="r")
    (machine.workspace / "r/a").write_text("x")
    machine.done("git.add", path="r", files=["a"])
    machine.done("git.commit", path="r", message="m")
    assert "Author: Curtainwall <curtainwall@localhost>" in machine.done("git.log", path="r")


def test_no_line_of_a_key_is_the_head_of_a_hunk(machine: Machine) -> None:
    machine.done("git.init", path="r")
    key = "\n".join(f"k{number:02}{'aB3+' * 15}x" for number in range(20))
    above = f"-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n1\n2\n3\n"
    file = machine.workspace / "r/a"
    file.write_text(f"{above}4\ndef f():\n5\n6\n7\n8\n")
    machine.done("git.add", path="r", files=["a"])
    machine.done("git.commit", path="r", message="m")
    file.write_text(f"{above}four\ndef f():\n5\n6\n7\neight\n")
    told = machine.done("git.diff", path="r")
    assert "+four" in told
    assert "aB3+" not in told
    file.write_text(f"{above}4\ndef f():\n5\n6\n7\neight\n")
    assert "@@ def f():" in machine.done("git.diff", path="r")


def test_looking_changes_nothing(machine: Machine) -> None:
    machine.done("git.init", path="r")
    (machine.workspace / "r/a").write_text("x")
    machine.done("git.add", path="r", files=["a"])
    os.utime(machine.workspace / "r/a", (1, 1))
    before = (machine.workspace / "r/.git/index").stat().st_mtime_ns
    machine.done("git.status", path="r")
    assert (machine.workspace / "r/.git/index").stat().st_mtime_ns == before


def test_a_clone_brings_files_branches_and_tags(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    other = filled(server, "ann/r.git", tmp_path)
    git("push", "--quiet", server.url("ann/r.git"), "main:side", cwd=other)
    machine.done("git.clone", url=server.url("ann/r.git"), path="deep/c")
    where = machine.workspace / "deep/c"
    assert (where / "a.txt").read_text() == "one\n"
    assert git("status", "--porcelain", "--branch", cwd=where) == "## main...origin/main\n"
    assert git("tag", cwd=where) == "v1\n"
    assert git("remote", "get-url", "origin", cwd=where).strip() == server.url("ann/r.git")
    assert "remotes/origin/side" in machine.done("git.branch", path="deep/c")
    assert "already there" in machine.fault("git.clone", url=server.url("ann/r.git"), path="deep/c")
    # Only what the clone knows of remains; nothing leads to our own directories.
    assert "curtainwall-git" not in (where / ".git/config").read_text()
    assert not (where / ".git/objects/info/alternates").exists()
    git("fsck", "--strict", cwd=where)


def test_an_empty_repository_and_a_missing_one(machine: Machine, server: GitServer) -> None:
    server.make("ann/empty.git")
    assert "it is empty" in machine.done("git.clone", url=server.url("ann/empty.git"), path="e")
    assert "not found" in machine.fault("git.clone", url=server.url("ann/none.git"), path="n")
    assert not (machine.workspace / "n").exists()


def test_fetch_pull_and_push_go_round(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    other = filled(server, "ann/r.git", tmp_path)
    machine.done("git.clone", url=server.url("ann/r.git"), path="c")
    machine.done("git.set_working_dir", path="c")
    (other / "b.txt").write_text("theirs\n")
    git("add", ".", cwd=other)
    git("commit", "--quiet", "-m", "theirs", cwd=other)
    git("push", "--quiet", server.url("ann/r.git"), "main", cwd=other)
    told = machine.done("git.fetch")
    assert f"From {server.url('ann/r')}" in told
    assert "main" in told
    assert not (machine.workspace / "c/b.txt").exists()
    (machine.workspace / "c/c.txt").write_text("ours\n")
    machine.done("git.add", files=["c.txt"])
    machine.done("git.commit", message="ours")
    assert "Merge made" in machine.done("git.pull")
    assert (machine.workspace / "c/b.txt").read_text() == "theirs\n"
    assert "main" in machine.done("git.push")
    assert "## main...origin/main\n" in machine.done("git.status")
    assert git("-C", str(server.root / "ann/r.git"), "log", "--format=%s", "-1", "main").startswith("Merge")
    machine.done("git.checkout", ref="topic", create=True)
    machine.done("git.push", branch="topic")
    assert "refs/heads/topic" in git("-C", str(server.root / "ann/r.git"), "for-each-ref")
    assert "no branch `none`" in machine.fault("git.push", branch="none")
    # What we already have is not asked for again.
    before = len(server.asked)
    machine.done("git.fetch")
    assert len([line for line in server.asked[before:] if line.startswith("POST")]) <= 1


def test_a_repository_with_sha256_ids_can_be_cloned_fetched_and_pushed(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    other = filled(server, "ann/r.git", tmp_path, "sha256")
    machine.done("git.clone", url=server.url("ann/r.git"), path="c")
    machine.done("git.set_working_dir", path="c")
    (other / "b.txt").write_text("theirs\n")
    git("add", ".", cwd=other)
    git("commit", "--quiet", "-m", "theirs", cwd=other)
    git("push", "--quiet", server.url("ann/r.git"), "main", cwd=other)
    assert "Fast-forward" in machine.done("git.pull")
    (machine.workspace / "c/c.txt").write_text("ours\n")
    machine.done("git.add", files=["c.txt"])
    machine.done("git.commit", message="ours")
    prepared = machine.prepare("git.push")
    assert "1 commit more than" in str(prepared.subject.canonical["pushes"])
    assert "secrets" not in prepared.subject.canonical
    assert "main" in machine.done("git.push")
    assert git("-C", str(server.root / "ann/r.git"), "log", "--format=%s", "-1", "main") == "ours\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can work in a directory that is somebody else's")
def test_as_root_git_works_in_a_workspace_that_belongs_to_an_agent_and_all_it_makes_is_the_agents(
    machine: Machine, server: GitServer, tmp_path: Path
) -> None:
    os.chown(machine.workspace, 1234, 1234)
    machine.workspace.chmod(0o700)
    other = filled(server, "ann/r.git", tmp_path)
    machine.done("git.clone", url=server.url("ann/r.git"), path="deep/c")
    git("commit", "--quiet", "--allow-empty", "-m", "theirs", cwd=other)
    git("push", "--quiet", server.url("ann/r.git"), "main", cwd=other)
    machine.done("git.set_working_dir", path="deep/c")
    machine.done("git.fetch")
    assert "Fast-forward" in machine.done("git.pull") or "theirs" in machine.done("git.log")
    machine.done("git.checkout", ref="topic", create=True)
    machine.done("git.push", branch="topic")
    assert "refs/heads/topic" in git("-C", str(server.root / "ann/r.git"), "for-each-ref")
    assert {path.lstat().st_uid for path in (machine.workspace, *machine.workspace.rglob("*"))} == {1234}


def test_a_push_that_would_lose_commits_is_refused_by_the_remote(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    other = filled(server, "ann/r.git", tmp_path)
    machine.done("git.clone", url=server.url("ann/r.git"), path="c")
    git("commit", "--quiet", "--allow-empty", "-m", "theirs", cwd=other)
    git("push", "--quiet", server.url("ann/r.git"), "main", cwd=other)
    (machine.workspace / "c/a.txt").write_text("ours")
    machine.done("git.add", path="c", files=["a.txt"])
    machine.done("git.commit", path="c", message="ours")
    assert "rejected" in machine.fault("git.push", path="c")


def test_a_url_instead_of_a_name(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    filled(server, "ann/r.git", tmp_path)
    machine.done("git.init", path="r")
    assert "FETCH_HEAD" in machine.done("git.fetch", path="r", remote=server.url("ann/r.git"))
    machine.done("git.pull", path="r", remote=server.url("ann/r.git"), branch="main")
    assert (machine.workspace / "r/a.txt").read_text() == "one\n"


def test_no_directory_of_ours_stays_behind(machine: Machine, server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.root / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(machine.root / "scratch"))
    filled(server, "ann/r.git", tmp_path)
    machine.done("git.clone", url=server.url("ann/r.git"), path="c")
    machine.fault("git.clone", url=server.url("ann/none.git"), path="n")
    assert list((machine.root / "scratch").iterdir()) == []


def test_in_a_project_git_works_as_far_as_it_was_judged(tmp_path: Path) -> None:
    project = Machine.at(tmp_path, own=False)
    git("init", "--quiet", "--initial-branch=main", str(project.workspace))
    (project.workspace / "a").write_text("x")
    project.done("git.add", files=["a"])
    project.done("git.commit", message="first")
    project.done("git.checkout", ref="side", create=True)
    project.done("git.checkout", ref="main")
    project.as_(Mode.ACCEPT_EDITS).done("git.branch", name="third")
    assert git("branch", "--format=%(refname:short)", cwd=project.workspace).split() == ["main", "side", "third"]
    assert project.sh("git commit --allow-empty -m x")["exit_code"] != 0


def test_a_repository_outside_is_opened_alone_and_never_with_something_protected(machine: Machine) -> None:
    other = machine.root / "other"
    git("init", "--quiet", "--initial-branch=main", str(other))
    assert "No commits yet" in machine.done("git.status", path=str(other))
    git("init", "--quiet", str(machine.root / "home"))
    assert "protected" in machine.fault("git.status", path=str(machine.root / "home"))


@pytest.mark.parametrize(
    ("url", "alias"), [("git@github.com:ann/r.git", "github.com"), ("ssh://git@git.example.org:2222/ann/r.git", "[git.example.org]:2222")]
)
def test_ssh_goes_to_the_judged_host_and_asks_nobody(url: str, alias: str) -> None:
    remote = one_remote(url)
    target = GitTarget(remote.url, remote.host)
    assert target.protocol == "ssh"
    command = ssh_command(target, "192.0.2.7")
    for option in ("BatchMode=yes", "StrictHostKeyChecking=yes", "ProxyCommand=none", "HostName=192.0.2.7", f"HostKeyAlias={alias}"):
        assert f"-o '{option}'" in command


def test_a_protocol_without_encryption_or_address_is_refused(machine: Machine) -> None:
    assert "use https or ssh" in machine.fault("git.clone", url="git://git.example.org/ann/r.git", path="g")


def committed(machine: Machine, title: str) -> str:
    """Commit something in the clone, and return the commit's id."""
    where = machine.workspace / "c"
    (where / "a.txt").write_text(title)
    git("commit", "--quiet", "--all", "-m", title, cwd=where)
    return git("rev-parse", "HEAD", cwd=where).strip()


def at_the_server(server: GitServer, ref: str = "main") -> str:
    return git("-C", str(server.root / "ann/r.git"), "rev-parse", ref).strip()


def pushed(machine: Machine, prepared: Prepared, *, asked: bool = True) -> ToolResult:
    """Run a push that was judged before, with a permit that somebody had to be asked for."""
    allowed = permit(prepared).model_copy(update={"answered_by": ("abc123",) if asked else ()})
    return asyncio.run(machine.tools.run(prepared, allowed, machine.place))


def test_a_push_sends_the_commit_that_was_judged_and_nothing_later(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    filled(server, "ann/r.git", tmp_path)
    machine.done("git.clone", url=server.url("ann/r.git"), path="c")
    before = at_the_server(server)
    judged = committed(machine, "what a human sees")
    prepared = machine.prepare("git.push", path="c")
    assert prepared.arguments["commit"] == judged
    assert (
        prepared.arguments["pushes"] == f'{judged[:12]} "what a human sees" to `main`: 1 commit more than {before[:12]}, which `origin` has'
    )

    committed(machine, "made while the human thinks")
    moved = pushed(machine, prepared)
    assert not moved.ok
    assert f"`main` has moved since the push of {judged[:12]} was judged" in str(moved.value)
    assert at_the_server(server) == before
    assert machine.prepare("git.push", path="c").subject.digest != prepared.subject.digest

    git("reset", "--quiet", "--hard", judged, cwd=machine.workspace / "c")
    assert pushed(machine, prepared).ok
    assert at_the_server(server) == judged


def test_a_branch_that_is_gone_is_not_pushed(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    filled(server, "ann/r.git", tmp_path)
    machine.done("git.clone", url=server.url("ann/r.git"), path="c")
    git("branch", "topic", cwd=machine.workspace / "c")
    prepared = machine.prepare("git.push", path="c", branch="topic")
    git("branch", "-D", "topic", cwd=machine.workspace / "c")
    assert "no branch `topic` any more" in str(pushed(machine, prepared).value)
    git("checkout", "--quiet", "--detach", cwd=machine.workspace / "c")
    assert "no branch is checked out" in machine.fault("git.push", path="c")


def test_a_push_of_more_than_was_shown_is_refused(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    filled(server, "ann/r.git", tmp_path)
    machine.done("git.clone", url=server.url("ann/r.git"), path="c")
    before = at_the_server(server)
    hidden = committed(machine, "nobody should see this one")
    tip = committed(machine, "a harmless one")
    git("update-ref", "refs/remotes/origin/main", hidden, cwd=machine.workspace / "c")
    prepared = machine.prepare("git.push", path="c")
    assert "1 commit more than" in str(prepared.arguments["pushes"])
    refused = pushed(machine, prepared)
    assert f"is not known to have {hidden[:12]}, so more would be pushed than was shown" in str(refused.value)
    assert at_the_server(server) == before
    # Where nobody was shown anything, there is nothing that must be true of it.
    assert pushed(machine, prepared, asked=False).ok
    assert at_the_server(server) == tip


def test_a_memory_of_the_remote_beside_the_branch_hides_no_commit_of_a_push(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    filled(server, "ann/r.git", tmp_path)
    machine.done("git.clone", url=server.url("ann/r.git"), path="c")
    where, before = machine.workspace / "c", at_the_server(server)
    hidden = committed(machine, "nobody should see this one")
    committed(machine, "a harmless one")
    # It is no part of what is pushed, but builds on what should not be seen.
    beside = git("commit-tree", "-m", "forged", "-p", hidden, f"{hidden}^{{tree}}", cwd=where).strip()
    git("update-ref", "refs/remotes/origin/main", beside, cwd=where)
    prepared = machine.prepare("git.push", path="c")
    assert "1 commit more than" in str(prepared.arguments["pushes"])
    refused = pushed(machine, prepared)
    assert f"is not known to have {beside[:12]}, so more would be pushed than was shown" in str(refused.value)
    assert at_the_server(server) == before


def test_a_branch_that_was_merged_and_taken_away_at_the_remote_can_be_pushed_again(
    machine: Machine, server: GitServer, tmp_path: Path
) -> None:
    other = filled(server, "ann/r.git", tmp_path)
    git("push", "--quiet", server.url("ann/r.git"), "main:topic", cwd=other)
    machine.done("git.clone", url=server.url("ann/r.git"), path="c")
    git("checkout", "--quiet", "-b", "topic", "origin/topic", cwd=machine.workspace / "c")
    tip = committed(machine, "more of it")
    git("push", "--quiet", server.url("ann/r.git"), ":topic", cwd=other)
    prepared = machine.prepare("git.push", path="c")
    assert "1 commit more than" in str(prepared.arguments["pushes"])
    assert pushed(machine, prepared).ok
    assert at_the_server(server, "topic") == tip


def test_a_remote_that_has_more_than_was_known_gets_less_than_was_shown(machine: Machine, server: GitServer, tmp_path: Path) -> None:
    filled(server, "ann/r.git", tmp_path)
    machine.done("git.clone", url=server.url("ann/r.git"), path="c")
    first = committed(machine, "one")
    tip = committed(machine, "two")
    prepared = machine.prepare("git.push", path="c")
    git("push", "--quiet", server.url("ann/r.git"), f"{first}:refs/heads/main", cwd=machine.workspace / "c")
    assert pushed(machine, prepared).ok
    assert at_the_server(server) == tip
