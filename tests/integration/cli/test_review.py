"""Review mode on the command line, with the real tools: an agent works on a view, and a person answers once."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.program import Program
from tests.support.views import plant, tree_of
from tests.support.waiting import until

WORK = """
await filesystem.write_file(path='a.txt', content='one\\n2\\nthree\\n')
await filesystem.edit_file(path='src/b.py', edits=[{'oldText': 'x = 1', 'newText': 'x = 2'}])
print(await shell.run(command='printf new > new.txt; cat src/b.py; false || echo failed; git add -A; git commit -qm done'))
"""


@pytest.fixture
def project(program: Program) -> Path:
    place = program.workspace
    plant(place, {"a.txt": "one\ntwo\nthree\n", "src/b.py": "x = 1\n"})
    for words in (
        ("init", "-q"),
        ("config", "user.email", "a@b.c"),
        ("config", "user.name", "ann"),
        ("add", "-A"),
        ("commit", "-qm", "one"),
    ):
        subprocess.run(("git", "-C", str(place), *words), check=True)
    return place


def script(program: Program, *lines: dict[str, str]) -> str:
    file = program.scratch / "script.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return f"script:{file}"


def whole(project: Path) -> dict[str, object]:
    """Return everything in a project, its git directory included."""
    return {**tree_of(project), **{f".git/{path}": each for path, each in tree_of(project / ".git").items()}}


def start(program: Program, model: str, *more: str, fails: bool = True) -> subprocess.CompletedProcess[str]:
    words = ("start", "--mode", "review", "--workspace", program.workspace, "--model", model, "--on-ask", "park", *more, "do it")
    return program(*words, fails=fails)


@covers("review.one-ask-at-the-end")
def test_an_agent_works_on_a_view_and_one_answer_applies_some_of_it(program: Program, project: Path) -> None:
    before = whole(project)
    model = script(program, {"text": "on it", "code": WORK}, {"text": "all done"}, {"text": "I see"})
    assert start(program, model).returncode == 3
    assert whole(project) == before, "the project is untouched, its git directory included"
    (ask,) = program.json("approvals", "list")
    assert ask["tool"] == "session.apply_changes"
    assert "changes: 3 files (1 added, 2 modified)" in ask["shown"]
    listed = program("sessions", "changes", ask["session"]).stdout
    assert "(waiting for an answer)" in listed
    assert "            2 + 2\n" in program("sessions", "diff", ask["session"], "a.txt").stdout
    assert "does not change `zzz`" in program("approve", ask["id"], "zzz", fails=True).stderr
    program("approve", ask["id"], "a.txt", "new.txt")
    assert whole(project) == before
    program("start", "--resume", ask["session"], "--on-ask", "park", "what happened?")
    now = tree_of(project)
    assert (now["a.txt"][2], now["new.txt"][2], now["src/b.py"][2]) == (b"one\n2\nthree\n", b"new", b"x = 1\n")
    told = [event["text"] for event in program.events(ask["session"], "MessageAccepted") if event["role"] == "context"]
    assert told == ["Your changes in the project were answered: 2 changes were applied; 1 change was not accepted and is only in your view"]
    assert program.json("approvals", "list") == [], "what was not accepted is not asked about again"
    assert program.json("sessions", "changes", ask["session"])["status"] == "accepted in part"


@covers("review.sent-back")
def test_a_comment_sends_the_agent_back_and_its_next_set_is_accepted(program: Program, project: Path) -> None:
    again = {"text": "better", "code": "await filesystem.write_file(path='a.txt', content='better\\n')"}
    model = script(program, {"text": "on it", "code": WORK}, {"text": "all done"}, again, {"text": "now?"})
    start(program, model)
    first = program.open_approval()
    program("deny", first, "--reason", "say it better")
    (session,) = [row["id"] for row in program.sessions()]
    program("start", "--resume", session, "--on-ask", "park", "go on", fails=True)
    second = program.open_approval()
    assert second != first
    program("approve", second)
    program("start", "--resume", session, "--on-ask", "park", "go on", fails=True)
    assert (project / "a.txt").read_text() == "better\n"
    assert (project / "src/b.py").read_text() == "x = 2\n"


def test_a_task_that_denies_every_ask_ends(program: Program, project: Path) -> None:
    before = whole(project)
    model = script(program, {"text": "on it", "code": WORK}, {"text": "all done"})
    words = ("start", "--mode", "review", "--workspace", program.workspace, "--model", model, "--on-ask", "deny", "do it")
    program(*words)
    assert whole(project) == before
    (row,) = program.sessions()
    assert len(program.events(row["id"], "ApprovalAsked")) == 1


def test_ask_is_another_word_for_the_default_mode(program: Program, project: Path) -> None:
    model = script(program, {"text": "on it", "code": "await filesystem.write_file(path='a.txt', content='x')"}, {"text": "done"})
    program("start", "--mode", "ask", "--workspace", project, "--model", model, "--on-ask", "deny", "do it")
    (row,) = program.sessions()
    (opened,) = program.events(row["id"], "SessionOpened")
    assert opened["mode"] == "default"
    assert "`odd` is not one of `plan`, `review`, `default`" in program("start", "--mode", "odd", "x", fails=True).stderr


def test_an_agent_that_cannot_work_on_a_view_refuses_the_mode(program: Program, project: Path) -> None:
    refused = program("start", "--agent", "claude-local", "--mode", "review", "--workspace", project, "do it", fails=True)
    assert refused.returncode == 1
    assert tree_of(project).keys() == {"a.txt", "src", "src/b.py"}


MANY = 200
MAKE_MANY = (
    f"print(await shell.run(command='for n in $(seq 100 {99 + MANY}); do for i in $(seq 50); do echo content $n; done > f$n; done'))"
)


def applied(project: Path) -> int:
    return sum(name.startswith("f") for name in os.listdir(project))


@covers("review.applied-after-a-crash")
@pytest.mark.parametrize("kill_at", [0, 1, 60, 199])
def test_accepted_changes_are_finished_by_the_next_process_after_one_was_killed(program: Program, project: Path, kill_at: int) -> None:
    before = whole(project)
    start(program, script(program, {"text": "on it", "code": MAKE_MANY}, {"text": "done"}, {"text": "and now?"}))
    (session,) = [row["id"] for row in program.sessions()]
    program("approve", program.open_approval())
    assert whole(project) == before, "nobody is there who could apply them"
    first = program.begin("start", "--resume", session, "--on-ask", "park", "go on")
    until(lambda: applied(project) >= kill_at or first.child.poll() is not None, pause=0)
    first.kill_everything()
    (project / "f250").write_text("saved by the user\n")
    is_half_done = program.events(session, "CallFinished")[1:] == []
    program("start", "--resume", session, "--on-ask", "park", "go on")
    now = tree_of(project)
    assert {name for name in now if name.startswith("f")} == {f"f{number}" for number in range(100, 100 + MANY)}
    assert now["f250"][2] == b"saved by the user\n"
    assert all(now[f"f{number}"][2] == f"content {number}\n".encode() * 50 for number in range(100, 100 + MANY) if number != 250)
    assert {name: each for name, each in whole(project).items() if name in before} == before
    _, finished = program.events(session, "CallFinished")
    assert (len(program.events(session, "CallPermitted")), program.events(session, "CallLost")) == (2, [])
    if is_half_done:
        assert "1 change was left alone (`f250`: something is there by now)" in str(finished["result"])
