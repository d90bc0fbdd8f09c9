"""One session and two processes that work on it in turn: each tells only what answers its own message, and nothing is lost in between."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.program import Program, Running
from tests.support.serving import script_of
from tests.support.waiting import until

ASK = {"code": "await filesystem.read_file(path='/etc/hostname')"}


def begin_and_ask(program: Program, *lines: dict[str, object]) -> tuple[Running, str, str]:
    """Begin a task that asks and waits; return its process, its session and the approval."""
    model = script_of(program.scratch / "script.jsonl", (ASK, *lines))
    first = program.begin("start", "--on-ask", "wait", "--output", "json", "--model", model, "first")
    approval = first.says(r"`curtainwall approve (\w{6})`")
    (row,) = program.sessions()
    return first, row["id"], approval


def follow(program: Program, session: str, text: str, *options: str) -> Running:
    """Send a message from another process, and return that one once the message is in the queue."""
    known = len(program.events(session, "MessageAccepted"))
    running = program.begin("start", "--resume", session, "--output", "json", *options, text)
    until(lambda: len(program.events(session, "MessageAccepted")) > known)
    return running


@covers("start.tells-its-own-answer")
def test_a_second_process_tells_only_what_answers_its_own_message(program: Program) -> None:
    first, session, approval = begin_and_ask(program, {"text": "the first answer"}, {"text": "the second answer"})
    second = follow(program, session, "second", "--on-ask", "wait")
    program("approve", approval)
    assert (first.code(), second.code()) == (0, 0)
    told = json.loads(second.out)
    assert (told["status"], told["text"]) == ("done", "the second answer")
    assert json.loads(first.out)["text"] == "the first answer"


CHOOSE = """
for path in (".", "inner"):
    await git.init(path=path)
await git.set_working_dir(path="inner")
"chosen"
"""
COMMIT = """
await filesystem.write_file(path="inner/{name}", content="x")
await git.add(files=["{name}"])
await git.commit(message="{name}")
"""


def commits(workspace: Path) -> str:
    return subprocess.run(("git", "log", "--format=%s"), cwd=workspace, capture_output=True, text=True, check=True).stdout


@covers("tools.git-directory-kept")
@pytest.mark.parametrize("how", ["--resume", "--fork"])
def test_git_works_where_it_was_told_to_also_in_the_next_process(program: Program, bubblewrap: str, how: str) -> None:
    lines = {"code": CHOOSE}, {"text": "chosen"}, {"code": COMMIT.format(name="a.txt")}, {"text": "committed"}
    model = script_of(program.scratch / "script.jsonl", lines)
    first = program.json("start", "--model", model, "choose")
    second = program.json("start", how, first["session"], "commit")
    assert (second["status"], second["text"]) == ("done", "committed"), second
    workspace = program.home / "sessions" / second["session"] / "workspace"
    assert commits(workspace / "inner") == "a.txt\n"
    with pytest.raises(subprocess.CalledProcessError):
        commits(workspace)


@covers("start.interrupts-its-own-turn")
def test_an_interrupt_stops_the_turn_of_the_process_that_got_it_and_no_other(program: Program) -> None:
    nap = {"code": "await shell.run(command='touch begun; while [ ! -e go ]; do sleep 0.1; done')"}
    model = script_of(program.scratch / "script.jsonl", (nap, {"text": "the first answer"}, {"text": "the second answer"}))
    first = program.begin("start", "--output", "json", "--mode", "bypass", "--model", model, "first")
    (row,) = until(program.sessions)
    workspace = program.home / "sessions" / row["id"] / "workspace"
    until((workspace / "begun").exists)
    second = follow(program, row["id"], "second")
    second.interrupt()
    assert second.code() == 130
    (workspace / "go").touch()
    assert first.code() == 0
    assert json.loads(first.out)["text"] == "the first answer"
    assert program.events(row["id"], "InterruptAsked") == []
