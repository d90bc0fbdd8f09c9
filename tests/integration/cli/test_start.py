"""`curtainwall start` with one task, as a script or a person at a shell uses it: what it says where, exit codes, parking and going on."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.covers import covers
from tests.support.program import Program
from tests.support.waiting import until

HOSTNAME = Path("/etc/hostname")
KEYS = {"session", "status", "text", "turns", "files", "usage", "pending"}

ONE_WAIT = """
old = await filesystem.read_file(path="a.txt")
await filesystem.write_file(path="a.txt", content=old + "a line\\n")
asked = await filesystem.read_file(path={left!r})
await filesystem.write_file(path="b.txt", content=asked)
"""
TWO_WAITS = """
import asyncio
old = await filesystem.read_file(path="a.txt")
await filesystem.write_file(path="a.txt", content=old + "a line\\n")
left, right = await asyncio.gather(filesystem.read_file(path={left!r}), filesystem.read_file(path={right!r}))
await filesystem.write_file(path="b.txt", content=left + right)
"""


def script(program: Program, *lines: dict[str, Any]) -> str:
    """Write a script beside the workspace and return the name of the model that plays it."""
    path = program.scratch / "script.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"script:{path}"


def asking(program: Program, code: str) -> tuple[str | Path, ...]:
    """Return the words that start a program which appends to a.txt, asks, and writes b.txt."""
    for name in ("left", "right"):
        (program.scratch / name).write_text(f"{name}\n")
    (program.workspace / "a.txt").write_text("")
    told = code.format(left=str(program.scratch / "left"), right=str(program.scratch / "right"))
    model = script(program, {"code": told}, {"text": "b.txt is written."})
    return ("start", "--model", model, "--workspace", program.workspace, "--mode", "accept-edits")


def appended(program: Program) -> tuple[str, int]:
    """Return what the append left, with the moment it was made: writing the same again would be seen."""
    path = program.workspace / "a.txt"
    return path.read_text(), path.stat().st_mtime_ns


def waits_for(program: Program) -> dict[str, str]:
    """Return the open approvals by the file that each is about."""
    return {Path(row["covers"][0]["value"]).name: row["id"] for row in program.json("approvals", "list")}


# Somebody who answers by themselves


@covers("approver.from-the-configuration")
def test_an_approver_of_the_configuration_answers_what_it_was_made_for_and_leaves_the_rest(program: Program) -> None:
    for name in ("open.txt", "closed.txt"):
        (program.scratch / name).write_text(f"the words of {name}\n")
    guard = program.scratch / "bin" / "guard"
    guard.parent.mkdir()
    guard.write_text('#!/bin/sh\ngrep -q open.txt && echo \'{"decision": "approved"}\'\n')
    guard.chmod(0o755)
    program.configure(f'[approvals]\napprover = ["{guard}"]\n')
    done = program("start", "--workspace", program.workspace, f"read {program.scratch / 'open.txt'}")
    assert "the words of open.txt" in done.stdout
    assert "by approver guard on runtime" in done.stderr
    left = program("start", "--workspace", program.workspace, f"read {program.scratch / 'closed.txt'}", fails=True)
    assert left.returncode == 3
    assert list(waits_for(program)) == ["closed.txt"]
    refused = program("start", "--workspace", guard.parent, "list the files", fails=True)
    assert f"protected path `{guard}`" in refused.stderr


# Parking and going on


@covers("start.parks-and-goes-on")
def test_a_parked_task_ends_with_three_and_goes_on_at_the_next_line(program: Program) -> None:
    parked = program(*asking(program, ONE_WAIT), "go", fails=True)
    assert parked.returncode == 3
    before = appended(program)
    assert before[0] == "a line\n"
    assert not (program.workspace / "b.txt").exists()
    approval = program.open_approval()
    (session,) = program.sessions()
    assert f"`curtainwall approve {approval}`" in parked.stderr
    assert f"`curtainwall start --resume {session['id']}` goes on" in parked.stderr
    again = program("start", "--resume", session["id"], fails=True)
    assert (again.returncode, again.stdout) == (3, ""), "without an answer it stays where it is"
    program("approve", approval)
    done = program("start", "--resume", session["id"])
    assert done.stdout == "b.txt is written.\n"
    assert (program.workspace / "b.txt").read_text() == "left\n"
    assert appended(program) == before
    assert "no broken promises" in program("sessions", "replay", session["id"]).stdout


def killed_while_it_waits(program: Program, words: tuple[str | Path, ...], waits: int) -> str:
    """Start a task that waits for so many answers, kill everything with -9, and return the session."""
    running = program.begin(*words, "--on-ask", "wait", "go")
    running.says(f"(?:waits for an answer[^\\n]*\\n[^\\0]*){{{waits}}}")
    running.kill_everything()
    (session,) = program.sessions()
    return session["id"]


@covers("start.parks-and-goes-on")
def test_killed_while_it_waits_it_goes_on_after_an_answer(program: Program) -> None:
    session = killed_while_it_waits(program, asking(program, ONE_WAIT), 1)
    before = appended(program)
    program("approve", program.open_approval())
    assert program("start", "--resume", session).stdout == "b.txt is written.\n"
    assert (program.workspace / "b.txt").read_text() == "left\n"
    assert appended(program) == before
    assert program("audit", "verify").stdout.startswith("ok")


@pytest.mark.parametrize("taken_up_between", [False, True], ids=["at once", "one by one"])
@covers("start.several-waits")
def test_two_waits_of_one_program_are_answered_in_reverse_by_other_processes(program: Program, *, taken_up_between: bool) -> None:
    session = killed_while_it_waits(program, asking(program, TWO_WAITS), 2)
    before = appended(program)
    waits = waits_for(program)
    assert waits.keys() == {"left", "right"}
    program("approve", waits["right"])
    if taken_up_between:
        half = program("start", "--resume", session, fails=True)
        assert half.returncode == 3
        assert f"curtainwall approve {waits['left']}" in half.stderr
        assert waits["right"] not in half.stderr
    program("approve", waits["left"])
    assert program("start", "--resume", session).stdout == "b.txt is written.\n"
    assert (program.workspace / "b.txt").read_text() == "left\nright\n"
    assert appended(program) == before


def test_a_task_that_waits_goes_on_when_another_process_answers(program: Program) -> None:
    running = program.begin(*asking(program, ONE_WAIT), "--on-ask", "wait", "--output", "json", "go")
    approval = running.says(r"curtainwall approve (\w+)")
    program("approve", approval)
    assert running.code() == 0
    document = json.loads(running.out)
    assert (document["status"], document["text"], document["pending"]) == ("done", "b.txt is written.", [])
    assert appended(program)[0] == "a line\n"


def test_denied_from_elsewhere_the_agent_is_told_and_the_file_is_not_read(program: Program) -> None:
    session = program.json("start", "--model", "demo", f"read {program.scratch / 'W'}/../user/../far", fails=True)["session"]
    program("deny", program.open_approval(), "--reason", "not for agents")
    answer = program("start", "--resume", session).stdout
    assert "I was not allowed to read" in answer
    assert "not for agents" in answer


# Others who use the session at the same time


@covers("start.two-processes")
def test_a_session_that_another_process_works_for_can_be_followed_and_takes_messages(program: Program) -> None:
    first = program.begin("start", "--model", "demo", "--workspace", program.workspace, "--on-ask", "wait", "what is in /etc/hostname?")
    approval = first.says(r"curtainwall approve (\w+)")
    (session,) = program.sessions()
    follower = program.begin("start", "--resume", session["id"], "--on-ask", "wait")
    follower.says(approval)
    (program.workspace / "more.txt").write_text("one more thing\n")
    second = program("start", "--resume", session["id"], "read more.txt", fails=True)
    assert second.returncode == 3, "its message waits behind the ask"
    program("approve", approval)
    hostname = HOSTNAME.read_text().strip()
    assert (first.code(), follower.code()) == (0, 0)
    assert f"I read `/etc/hostname`: {hostname}" in first.out
    assert f"I read `/etc/hostname`: {hostname}" in follower.out
    program("start", "--resume", session["id"])
    told = program("sessions", "export", session["id"]).stdout
    assert told.count('"type":"MessageAccepted"') == 2
    assert told.count('"type":"CallFinished"') == 2, "each file was read once"
    assert "I read `more.txt`: one more thing" in told
    assert "no broken promises" in program("sessions", "replay", session["id"]).stdout


# What is said, and where


@covers("start.output-json")
def test_one_document_tells_how_a_task_ended(program: Program) -> None:
    (program.workspace / "poem.txt").write_text("roses\nviolets\n")
    done = program("start", "--output", "json", "--workspace", program.workspace, "how many lines are in poem.txt?")
    document = json.loads(done.stdout)
    assert document.keys() == KEYS
    assert (document["status"], document["turns"], document["pending"]) == ("done", 1, [])
    assert "2 lines" in document["text"]
    assert (document["usage"]["dollars"], document["usage"]["tokens_basis"]) == (0, "estimated")
    waiting = program.json("start", "--workspace", program.workspace, "read /etc/hostname", fails=True)
    assert waiting["status"] == "waiting"
    assert waiting["pending"] == [{"id": program.open_approval(), "tool": "filesystem.read_file", "because": ["read-outside"]}]
    assert {row["id"] for row in program.sessions()} == {document["session"], waiting["session"]}


@covers("start.output-stream-json")
def test_every_event_is_a_line_and_the_last_line_is_the_document(program: Program) -> None:
    (program.workspace / "poem.txt").write_text("roses\nviolets\n")
    told = program("start", "--output", "stream-json", "--workspace", program.workspace, "show poem.txt")
    assert told.stderr == ""
    *events, result = map(json.loads, told.stdout.splitlines())
    assert [event["seq"] for event in events] == list(range(events[0]["seq"], events[0]["seq"] + len(events)))
    kinds = [event["event"] for event in events]
    assert [kinds[0], *kinds[-2:]] == ["MessageAccepted", "TurnEnded", "SessionClosed"]
    assert {"ModelRequested", "CallRequested", "CallPermitted", "CallFinished", "AgentSpoke"} <= set(kinds)
    assert result.pop("event") == "result"
    assert result.keys() == KEYS
    assert "violets" in result["text"]


@covers("session.a-task-ends-its-session", "session.closed-can-be-reopened")
def test_a_task_that_is_done_ends_its_session_and_another_task_reopens_it(program: Program) -> None:
    hook = program.scratch / "hook"
    hook.write_text(f"#!/bin/sh\n{{ cat; echo; }} >> {program.scratch}/heard\n")
    hook.chmod(0o700)
    group = f'hooks = [{{type = "command", command = "{hook}"}}]'
    program.home.mkdir(mode=0o700, exist_ok=True)
    (program.home / "config.toml").write_text(f"[[hooks.SessionStart]]\n{group}\n[[hooks.SessionEnd]]\n{group}\n")
    session = program.json("start", "--model", "demo", "hello")["session"]
    assert program.json("sessions", "list")[0]["status"] == "closed"
    assert program.json("start", "--resume", session, "help")["status"] == "done"
    heard = [json.loads(line) for line in (program.scratch / "heard").read_text().splitlines() if line]
    assert [(it["hook_event_name"], it.get("source") or it.get("reason")) for it in heard] == [
        ("SessionStart", "startup"),
        ("SessionEnd", "done"),
        ("SessionStart", "resume"),
        ("SessionEnd", "done"),
    ]


@covers("start.an-empty-option-is-refused")
def test_an_empty_workspace_or_image_is_refused_before_anything_is_opened(program: Program) -> None:
    for option in ("--workspace", "--image"):
        refused = program("start", "--model", "demo", option, "", "hello", fails=True)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"{option} is empty" in refused.stderr
    assert not program.home.exists()


@covers("start.output-json")
def test_a_failed_task_ends_with_one_and_says_why(program: Program) -> None:
    model = script(program, {"text": "never played"})
    session = program.json("start", "--model", model, "hello")["session"]
    (program.scratch / "script.jsonl").unlink()
    failed = program("start", "--resume", session, "--output", "json", "and now?", fails=True)
    document = json.loads(failed.stdout)
    assert (failed.returncode, document["status"]) == (1, "failed")
    assert "cannot be read" in document["failure"]
    assert "the turn failed: " in failed.stderr
    assert program("start", "--resume", session, "--model", "demo", "what is 6 * 7?").stdout.count("42") == 1, "it is usable afterwards"


def test_text_goes_to_stdout_and_everything_else_to_stderr_without_colours(program: Program) -> None:
    done = program(
        "start", "--workspace", program.workspace, "write 'x' to out.txt", "--mode", "accept-edits", NO_COLOR="", TERM="xterm-256color"
    )
    assert done.stdout == f"I will write `out.txt`.\n\nI wrote `out.txt`: wrote 1 byte to `{program.workspace}/out.txt`\n"
    assert done.stderr == "✓ filesystem.write_file out.txt\nfiles: wrote out.txt\n"


@pytest.mark.parametrize("broken", ["{", "[]", '{"hooks": 3}', "[" * 100_000], ids=["half", "a list", "no hooks", "deep"])
def test_a_workspace_whose_settings_are_broken_is_worked_in_without_its_hooks(program: Program, broken: str) -> None:
    (program.workspace / ".claude").mkdir()
    (program.workspace / ".claude" / "settings.json").write_text(broken)
    said = program("start", "--model", "demo", "--workspace", program.workspace, "what is 1 + 1?")
    assert said.returncode == 0, said.stderr
    assert f"the hooks of `{program.workspace}` cannot be read and do not run: " in said.stderr


def test_what_is_piped_in_is_the_task_or_belongs_to_it(program: Program) -> None:
    (program.workspace / "list.txt").write_text("pears\n")
    assert "pears" in program("start", "--workspace", program.workspace, given="read list.txt\n").stdout
    assert "pears" in program("start", "--workspace", program.workspace, "read", given="list.txt\n").stdout
    nothing = program("start", "--workspace", program.workspace, given=" \n", fails=True)
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert "give a TASK, or pipe one in" in nothing.stderr


# Options


@covers("approvals.deadline-with-nobody-connected")
def test_a_task_that_waits_for_an_answer_goes_on_with_the_denial_when_the_deadline_has_come(program: Program) -> None:
    # Longer than an idle session stays in memory.
    program.configure('[approvals]\ndeadline = "5s"\n')
    model = script(program, {"code": "await filesystem.read_file(path='/etc/hostname')"}, {"text": "nobody let me"})
    done = program("start", "--on-ask", "wait", "--model", model, "--workspace", program.workspace, "what is it?")
    assert "nobody let me" in done.stdout
    assert "nobody answered" in done.stderr


@covers("start.on-ask-deny")
def test_on_ask_deny_lets_the_agent_go_on_without(program: Program) -> None:
    (program.workspace / "mine.txt").write_text("all mine\n")
    done = program("start", "--workspace", program.workspace, "--on-ask", "deny", "read /etc/hostname and mine.txt")
    assert "I was not allowed to read `/etc/hostname`: denied by `denied-by-human`" in done.stdout
    assert "all mine" in done.stdout
    assert program.json("approvals", "list") == []


@covers("start.fork")
def test_a_fork_knows_what_was_said_and_leaves_the_first_as_it_was(program: Program) -> None:
    first = program.json("start", "write 'x' to keep.txt")["session"]
    before = program("sessions", "export", first).stdout
    done = program("start", "--fork", first, "--model", "demo", "--mode", "plan", "--output", "json", "delete it")
    fork = json.loads(done.stdout)
    assert fork["session"] != first
    assert "I was not allowed to delete `keep.txt`: denied by `plan-reads-only`" in fork["text"], "it knows what `it` is, and its mode"
    rows = {row["id"]: row for row in program.sessions()}
    assert (rows[fork["session"]]["parent"], rows[fork["session"]]["mode"]) == (first, "plan")
    assert program("sessions", "export", first).stdout == before


@covers("start.model-and-mode-of-what-goes-on")
def test_a_session_that_goes_on_takes_another_model_and_mode(program: Program) -> None:
    first = program.json("start", "--model", script(program, {"text": "from the script"}), "hello")["session"]
    for how in ("--resume", "--fork"):
        told = program.json("start", how, first, "--model", "demo", "--mode", "accept-edits", "what is 8 * 8?")
        assert told["text"].endswith("64")
        (row,) = (row for row in program.sessions() if row["id"] == told["session"])
        assert (row["model"], row["mode"]) == ("demo", "accept-edits")


def test_a_rule_file_of_ones_own_counts(program: Program) -> None:
    rules = program.scratch / "own.cedar"
    rules.write_text(
        '@id("no-diaries") @title("Diaries are closed") '
        'forbid (principal, action == Action::"read-path", resource) when { resource.text like "*/diary.txt" };\n'
    )
    (program.workspace / "diary.txt").write_text("dear diary\n")
    done = program("start", "--workspace", program.workspace, "--policy", rules, "read diary.txt")
    assert "denied by `no-diaries`: Diaries are closed" in done.stdout
    assert "dear diary" not in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--resume", "a", "--fork", "b", "x"), 2, "give --resume or --fork, not both"),
        (("--resume", "a", "--workspace", ".", "x"), 2, "keeps its workspace"),
        (("--workspace", "gone", "x"), 2, "`gone` does not exist"),
        (("--mode", "wild", "x"), 2, "`wild` is not one of"),
        (("--output", "yaml", "x"), 2, "`yaml` is not one of"),
        (("--on-ask", "sing", "x"), 2, "`sing` is not one of"),
        (("--agent", "parrot", "x"), 2, "there is no agent `parrot`"),
        (("--resume", "nobody", "x"), 1, "there is no session `nobody`"),
        (("--model", "parrot", "x"), 1, "there is no model `parrot`; there are `demo`"),
        (("--model", "script:gone.jsonl", "x"), 1, "gone.jsonl` cannot be read"),
        (("--model", "anthropic:claude-sonnet-5", "x"), 1, "set ANTHROPIC_API_KEY in the environment"),
        (("--policy", "gone.cedar", "x"), 1, "gone.cedar` cannot be read"),
        ((), 2, "give a TASK"),
    ],
)
def test_what_cannot_be_meant_is_one_line_that_says_what_to_do_and_opens_nothing(
    program: Program, words: tuple[str, ...], code: int, said: str
) -> None:
    told = program("start", *words, fails=True)
    assert (told.returncode, told.stdout) == (code, "")
    assert told.stderr.startswith("curtainwall: ")
    assert len(told.stderr.splitlines()) == 1
    assert said in told.stderr
    assert not list(program.home.glob("sessions/*"))


def test_interrupted_while_it_waits_it_leaves_the_ask_open(program: Program) -> None:
    running = program.begin("start", "--on-ask", "wait", "read /etc/hostname")
    approval = running.says(r"curtainwall approve (\w+)")
    until(lambda: program.sessions()[0]["status"] == "waiting")
    running.interrupt()
    assert running.code() == 130
    assert "goes on" in running.err
    assert program.open_approval() == approval
