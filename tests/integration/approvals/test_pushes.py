"""A push that a human approves: the commit that was shown is the commit that is pushed, also where the answer comes long after."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.covers import covers
from tests.support.git_server import GitServer, git, serving
from tests.support.program import Program

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    (tmp_path / "served").mkdir()
    with serving(tmp_path / "served") as made:
        made.make("shop.git")
        yield made


@pytest.fixture
def project(tmp_path: Path, server: GitServer) -> Path:
    where = tmp_path / "shop"
    git("init", "--quiet", "--initial-branch=main", str(where))
    git("remote", "add", "origin", server.url("shop.git"), cwd=where)
    commit(where, "open at nine")
    return where


def commit(where: Path, title: str) -> str:
    git("commit", "--quiet", "--allow-empty", "-m", title, cwd=where)
    return git("rev-parse", "HEAD", cwd=where).strip()


def branches(server: GitServer) -> str:
    return git("-C", str(server.root / "shop.git"), "for-each-ref", "--format=%(objectname) %(refname)").strip()


@covers("approvals.push-is-bound-to-its-commit")
def test_what_is_committed_while_a_human_thinks_is_not_pushed_with_their_yes(
    program: Program, server: GitServer, project: Path, tmp_path: Path
) -> None:
    script = tmp_path / "push.jsonl"
    push = json.dumps({"tool": "git.push", "arguments": {}})
    script.write_text("\n".join((push, push, json.dumps({"text": "that is all"}))))
    shown = git("rev-parse", "HEAD", cwd=project).strip()
    parked = program("start", "--model", f"script:{script}", "--workspace", str(project), "publish it", fails=True)
    assert parked.returncode == 3
    session = program.sessions()[0]["id"]
    first = program.open_approval()
    told = f'pushes {shown[:12]} "open at nine" to `main`: 1 commit at most; what the remote has is not known'
    assert told in program("approvals", "show", first).stdout

    later = commit(project, "hand over the keys")
    program("approve", first)
    again = program("start", "--resume", session, fails=True)
    assert again.returncode == 3
    assert "it means something else than when it was approved" in again.stderr
    assert branches(server) == ""

    second = program.open_approval()
    assert second != first
    assert f'pushes {later[:12]} "hand over the keys" to `main`: 2 commits at most' in program("approvals", "show", second).stdout
    program("approve", second)
    program("start", "--resume", session)
    assert branches(server) == f"{later} refs/heads/main"


@covers("labels.pushed-secrets")
def test_a_push_that_brings_files_named_like_secrets_asks_also_where_the_remote_is_listed(
    program: Program, server: GitServer, project: Path, tmp_path: Path
) -> None:
    program.configure(f'[lists]\npush-remotes = ["{server.url("shop.git").removeprefix("http://").removesuffix(".git")}"]\n')
    script = tmp_path / "push.jsonl"
    push = json.dumps({"tool": "git.push", "arguments": {}})
    script.write_text("\n".join((push, json.dumps({"text": "that is all"}))))

    def start() -> dict[str, Any]:
        return program.json("start", "--model", f"script:{script}", "--workspace", str(project), "publish it", fails=True)

    assert start()["status"] == "done", "a listed remote is free"
    (project / "deploy").mkdir()
    (project / "deploy/.env").write_text("TOKEN=1\n")
    git("add", "--all", cwd=project)
    commit(project, "deploy")
    git("rm", "-q", "deploy/.env", cwd=project)
    tip = commit(project, "better not")
    told = start()
    assert [ask["because"] for ask in told["pending"]] == [["secrets-pushed"]]
    assert "deploy/.env" in program("approvals", "show", program.open_approval()).stdout
    program("approve", program.open_approval())
    program("start", "--resume", told["session"])
    assert branches(server) == f"{tip} refs/heads/main"
    (row,) = (row for row in program.sessions() if row["id"] == told["session"])
    assert row["labels"] == ["sensitive"]


@covers("labels.filters-read")
def test_what_git_shows_of_a_repository_with_a_filter_may_be_any_of_its_secrets(program: Program, project: Path, tmp_path: Path) -> None:
    (project / "a.txt").write_text("a\n")
    git("add", "a.txt", cwd=project)
    commit(project, "a file")
    (project / "a.txt").write_text("b\n")
    (project / ".env").write_text("harmless=but-not-known\n")
    script = tmp_path / "diff.jsonl"
    script.write_text("\n".join((json.dumps({"tool": "git.diff", "arguments": {}}), json.dumps({"text": "that is all"}))))

    def labels() -> list[str]:
        told = program.json("start", "--model", f"script:{script}", "--workspace", str(project), "look")
        (row,) = (row for row in program.sessions() if row["id"] == told["session"])
        return row["labels"]

    assert labels() == []
    (project / ".gitattributes").write_text("*.txt filter=trap\n")
    git("config", "filter.trap.clean", "cat .env", cwd=project)
    assert labels() == ["sensitive"]
    shown = json.dumps([json.loads(line) for line in program("sessions", "export", program.sessions()[0]["id"]).stdout.splitlines()])
    assert "harmless=but-not-known" in shown, "the filter did run"
