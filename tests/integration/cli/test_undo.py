"""Undo and redo on the command line, also after a process was killed in the middle."""

import json
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.program import Program
from tests.support.views import Tree, plant, tree_of
from tests.support.waiting import until

WORK = """
await filesystem.write_file(path='a.txt', content='one\\n2\\nthree\\n')
print(await shell.run(command='mkdir new; printf new > new/n.txt; rm b.txt; chmod +x run.sh'))
"""
MANY = 200
MAKE_MANY = f"""
print(await shell.run(command='for i in $(seq 100 {99 + MANY}); do echo changed $i > f$i; done'))
"""


@pytest.fixture
def project(program: Program) -> Path:
    place = program.workspace
    plant(place, {"a.txt": "one\ntwo\nthree\n", "b.txt": "b\n", "run.sh": "echo\n"})
    return place


def accepted(program: Program, code: str) -> str:
    """Have an agent work, accept all of it, and return the session."""
    file = program.scratch / "script.jsonl"
    lines = ({"text": "on it", "code": code}, {"text": "done"}, {"text": "I see"}, {"text": "and now"})
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    words = ("start", "--mode", "review", "--workspace", program.workspace, "--model", f"script:{file}", "--on-ask", "park")
    program(*words, "do it", fails=True)
    (session,) = [row["id"] for row in program.sessions()]
    program("approve", program.open_approval())
    program("start", "--resume", session, "--on-ask", "park", "go on")
    return session


@covers("undo.exact")
def test_undo_and_redo_show_what_they_do_and_do_it(program: Program, project: Path) -> None:
    before = tree_of(project)
    session = accepted(program, WORK)
    changed = tree_of(project)
    unconfirmed = program("sessions", "undo", session, fails=True)
    assert unconfirmed.returncode != 0
    assert "takes back step 1: 4 files" in unconfirmed.stdout
    assert "            2 + two" in unconfirmed.stdout
    assert "--yes" in unconfirmed.stderr
    assert tree_of(project) == changed
    assert "step 1 was taken back: 5 changes were applied" in program("sessions", "undo", session, "--yes").stdout
    assert tree_of(project) == before
    assert "step 1: taken back" in program("sessions", "changes", session).stdout
    (step,) = program.json("sessions", "changes", session)["steps"]
    assert (step["step"], step["undone"], step["can_redo"]) == (1, True, True)
    done = program.json("sessions", "redo", session, "--yes")
    assert [(each["step"], each["done"]) for each in done["steps"]] == [(1, True)]
    assert tree_of(project) == changed
    (project / "a.txt").write_text("mine\n")
    refused = program("sessions", "undo", session, "--yes", fails=True)
    assert (refused.returncode, "`a.txt`: it is no longer as this step left it" in refused.stderr) == (1, True)
    forced = program.json("sessions", "undo", session, "--yes", "--force")
    assert forced["steps"][0]["overwritten"] == ["a.txt"]
    assert tree_of(project) == before
    program("start", "--resume", session, "--on-ask", "park", "what happened?")
    told = [event["text"] for event in program.events(session, "MessageAccepted") if event["role"] == "context"]
    assert sum(text.startswith(("The user takes back step 1", "The user applies again step 1")) for text in told) == 3
    assert program("audit", "verify").returncode == 0


def test_deleting_a_session_deletes_what_undo_needed(program: Program, project: Path) -> None:
    session = accepted(program, WORK)
    contents = program.home / "sessions" / session / "view/contents"
    assert len([*contents.iterdir()]) >= 4
    program("sessions", "delete", session, "--yes")
    assert not contents.exists()
    assert program("sessions", "undo", session, "--yes", fails=True).returncode == 1


def changed_files(project: Path) -> int:
    return sum(path.read_text().startswith("changed") for path in project.glob("f*"))


@covers("undo.after-a-crash")
@pytest.mark.parametrize("kill_at", [MANY, MANY - 1, 100, 1])
def test_an_undo_that_was_killed_is_finished_by_the_next_process(program: Program, project: Path, kill_at: int) -> None:
    plant(project, {f"f{number}": f"old {number}\n" for number in range(100, 100 + MANY)})
    before: Tree = tree_of(project)
    session = accepted(program, MAKE_MANY)
    assert changed_files(project) == MANY
    first = program.begin("sessions", "undo", session, "--yes")
    until(lambda: changed_files(project) < kill_at or first.child.poll() is not None, pause=0)
    first.kill_everything()
    rest = program("sessions", "undo", session, "--yes", fails=True)
    assert tree_of(project) == before, rest.stderr
    assert rest.returncode == 0 or "was finished just now (takes back step 1)" in rest.stderr or "nothing that could be" in rest.stderr
    (step,) = program.json("sessions", "changes", session)["steps"]
    assert (step["undone"], step["status"]) == (True, "taken back")
    assert program.events(session, "CallLost") == []
    program("sessions", "redo", session, "--yes")
    assert changed_files(project) == MANY
