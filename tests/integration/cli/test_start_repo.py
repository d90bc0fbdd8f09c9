"""`curtainwall start --repo`: a clone that a human is asked about, parked, denied or answered at the terminal, and the task after it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from curtainwall.model import InstructionsPinned
from tests.support.git_server import git, serving
from tests.support.program import Program
from tests.support.serving import Home
from tests.support.waiting import until


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Serve a repository with one file, at an address that asks."""
    (tmp_path / "served").mkdir()
    with serving(tmp_path / "served") as server:
        server.make("shop.git")
        where = tmp_path / "elsewhere"
        git("init", "--quiet", "--initial-branch=main", str(where))
        (where / "notes.txt").write_text("the shop opens at nine\n")
        (where / "AGENTS.md").write_text("Be kind to customers.\n")
        git("add", "notes.txt", "AGENTS.md", cwd=where)
        git("commit", "--quiet", "-m", "one", cwd=where)
        git("push", "--quiet", str(tmp_path / "served" / "shop.git"), "main", cwd=where)
        yield server.url("shop.git")


def test_a_clone_that_asks_parks_and_the_task_follows_it_after_the_yes(program: Program, url: str) -> None:
    parked = program("start", "--model", "demo", "--repo", url, "read notes.txt", fails=True)

    assert parked.returncode == 3
    assert f"git.clone {url} waits for an answer: `curtainwall approve {program.open_approval()}`" in parked.stderr
    session = program.sessions()[0]["id"]
    assert f"then `curtainwall start --resume {session}` goes on" in parked.stderr
    still = program("start", "--resume", session, fails=True)
    assert still.returncode == 3

    program("approve", program.open_approval())
    assert "the shop opens at nine" in program("start", "--resume", session).stdout
    pinned = [event.path for event in Home(program.environ).events(session) if isinstance(event, InstructionsPinned)]
    assert pinned == ["AGENTS.md"], "the user named the repository"


def test_a_parked_clone_is_one_json_document(program: Program, url: str) -> None:
    told = program("start", "--model", "demo", "--repo", url, "read notes.txt", "--output", "json", fails=True)

    assert told.returncode == 3
    assert '"status": "waiting"' in told.stdout
    assert '"tool": "git.clone"' in told.stdout


def test_a_clone_that_asks_is_denied_where_the_user_says_so(program: Program, url: str) -> None:
    told = program("start", "--model", "demo", "--repo", url, "read notes.txt", "--on-ask", "deny", fails=True)

    assert told.returncode == 1
    assert "the repository was not cloned: denied by" in told.stderr
    assert f"`curtainwall start --resume {program.sessions()[0]['id']} TASK` asks for it again" in told.stderr
    assert program.json("approvals", "list") == []


def test_a_path_in_place_of_a_repository_is_told_as_one(program: Program) -> None:
    told = program("start", "--model", "demo", "--repo", "/srv/it.git", "read notes.txt", fails=True)
    assert "the remote `/srv/it.git` is a path on this machine; write a URL such as `https://host/owner/repo`" in told.stderr
    assert "--resume" not in told.stderr, "asking for it again would change nothing"


def test_a_task_does_not_run_without_its_repository_after_a_no_but_asks_for_it_again(program: Program, url: str) -> None:
    program("start", "--model", "demo", "--repo", url, "read notes.txt", fails=True)
    session = program.sessions()[0]["id"]
    program("deny", program.open_approval(), "--reason", "not today")

    again = program("start", "--resume", session, fails=True)
    assert (again.returncode, again.stdout) == (3, "")
    assert "the repository was not cloned when the session began, so that is asked for again" in again.stderr
    program("approve", program.open_approval())
    assert "the shop opens at nine" in program("start", "--resume", session).stdout
    assert "not cloned" not in program("start", "--resume", session, "read notes.txt").stderr


@pytest.mark.usefixtures("tmux")
def test_a_clone_is_answered_with_a_key_at_the_terminal(program: Program, url: str) -> None:
    with program.terminal("start", "--model", "demo", "--repo", url, "read notes.txt", "--on-ask", "wait") as screen:
        until(lambda: re.search(r"^\w{6}\? y once", screen.visible, re.MULTILINE))
        screen.type("y")
        until(lambda: "the shop opens at nine" in screen.visible)
