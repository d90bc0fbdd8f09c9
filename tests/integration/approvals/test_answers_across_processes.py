"""An approval asked in one process, which is killed; answered in another; taken up by a third. The same with files."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.covers import covers
from tests.support.forks import Begun
from tests.support.program import Program
from tests.support.serving import script_of
from tests.support.waiting import until

READ = "filesystem.read_file"


def said(child: Begun, key: str) -> Any:
    """Read what a process says until it says something of that name."""
    assert child.stdout is not None
    for line in child.stdout:
        told = json.loads(line)
        if key in told:
            return told[key]
    raise AssertionError(f"it ended without a word about {key}")


def rest(child: Begun) -> str:
    """Wait for the end of a process and return what it said since somebody last listened."""
    assert child.stdout is not None
    child.wait(90)
    return child.stdout.read()


def ask_and_wait(program: Program, path: str | Path) -> tuple[Begun, str, str]:
    """Start a process that asks and waits; return it with session and approval."""
    child = program.ask("--workspace", program.workspace, "--wait", READ, json.dumps({"path": str(path)}))
    return child, said(child, "session"), said(child, "approval")


def ask_and_kill(program: Program, path: str | Path) -> tuple[str, str]:
    """Ask in a process that waits, kill it with -9, and return session and approval."""
    child, session, approval = ask_and_wait(program, path)
    request = escalations(program, session) / f"request-{approval}.json"
    until(lambda: request.exists() or not (program.home / "config.toml").exists())
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    return session, approval


def outside(program: Program, name: str = "report.txt") -> Path:
    path = program.scratch / name
    path.write_text(name)
    return path


def test_an_answer_survives_the_process_that_asked(program: Program) -> None:
    path = outside(program)
    session, approval = ask_and_kill(program, path)
    assert program.effects == []
    done = program("approve", approval)
    assert "granted once" in done.stdout
    assert str(path) in done.stdout
    *_, answer = program.asked("--resume", session)
    assert answer["result"] == "done"
    assert program.effects == [{"tool": READ, "path": str(path)}]
    program.asked("--resume", session)
    assert len(program.effects) == 1, "an answer runs a call once"
    assert program("audit", "verify").stdout.startswith("ok")


def test_a_waiting_process_goes_on_when_another_answers(program: Program) -> None:
    child, _, approval = ask_and_wait(program, outside(program))
    program("approve", approval)
    out = rest(child)
    assert json.loads(out.splitlines()[-1])["result"] == "done"
    assert len(program.effects) == 1


def test_answering_again_says_who_settled_it_and_when(program: Program) -> None:
    _, approval = ask_and_kill(program, outside(program))
    program("deny", approval, "--reason", "not today")
    for again in (("approve", approval), ("deny", approval)):
        done = program(*again, fails=True)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "already answered by `" in done.stderr
        assert "denied at 20" in done.stderr
    (row,) = program.json("approvals", "list", "--all")
    assert (row["status"], row["reason"]) == ("denied", "not today")


def test_a_denied_call_never_runs(program: Program) -> None:
    session, approval = ask_and_kill(program, outside(program))
    program("deny", approval)
    program.asked("--resume", session)
    assert program.effects == []


@pytest.mark.parametrize("how", ["approve", "file"])
def test_an_answer_does_not_count_for_what_a_link_leads_to_by_now(program: Program, how: str) -> None:
    with_files(program)
    shown, other = outside(program), outside(program, "salaries.txt")
    link = program.workspace / "link"
    link.symlink_to(shown)
    session, approval = ask_and_kill(program, "link")
    link.unlink()
    link.symlink_to(other)
    if how == "approve":
        program("approve", approval)
    else:
        respond(program, session, approval, '{"decision": "approved"}')
    *_, answer = program.asked("--resume", session)
    assert (answer["effect"], answer["waiting"]) == ("ask", True)
    assert program.effects == []
    (row,) = program.json("approvals", "list")
    assert row["id"] != approval
    assert [cover["value"] for cover in row["covers"]] == [str(other)]


def test_an_unknown_approval_is_answered_with_those_that_are_open(program: Program) -> None:
    _, approval = ask_and_kill(program, outside(program))
    for wrong in ("zzzzzz", approval[:4]):
        done = program("approve", wrong, fails=True)
        assert done.returncode == 1
        assert f"open are `{approval}`" in done.stderr


def test_a_grant_for_reading_does_not_answer_for_moving(program: Program) -> None:
    path = outside(program)
    session, approval = ask_and_kill(program, path)
    granted = program.json("approve", approval, "--for", "session")
    program.asked("--resume", session)
    *_, again = program.asked("--resume", session, READ, json.dumps({"path": str(path)}))
    assert again["result"] == "done", "the grant answers the same wish"
    move = json.dumps({"source": str(path), "destination": "here.txt"})
    *_, moving = program.asked("--resume", session, "filesystem.move_file", move)
    assert moving["waiting"] is True
    assert len(program.effects) == 2
    program("grants", "revoke", granted["grant"])
    *_, after = program.asked("--resume", session, READ, json.dumps({"path": str(path)}))
    assert after["waiting"] is True, "a revoked grant answers nothing"


def test_a_granted_host_asks_again_once_the_session_is_tainted(program: Program) -> None:
    fetch = json.dumps({"url": "https://docs.python.org/3/"})
    first = program.asked("--workspace", program.workspace, "fetch.get", fetch)
    session = first[0]["session"]
    program("approve", program.open_approval(), "--for", "session")
    program.asked("--resume", session)
    *_, free = program.asked("--resume", session, "fetch.get", fetch)
    assert free["result"] == "done"
    program.asked("--resume", session, READ, json.dumps({"path": ".env"}))
    *_, tainted = program.asked("--resume", session, "fetch.get", fetch)
    assert tainted["waiting"] is True
    (row,) = program.json("approvals", "list")
    assert "sensitive-stays" in [rule for cover in row["covers"] for rule in cover["rules"]]


def with_files(program: Program) -> None:
    program.home.mkdir(exist_ok=True)
    (program.home / "config.toml").write_text("[approvals]\nfiles = true\n")


def escalations(program: Program, session: str) -> Path:
    return program.home / "sessions" / session / "escalations"


def respond(program: Program, session: str, approval: str, text: str) -> Path:
    """Put a response beside its request the careful way: written elsewhere, then renamed."""
    draft = program.scratch / "draft"
    draft.write_text(text)
    return draft.rename(escalations(program, session) / f"response-{approval}.json")


def test_an_open_approval_appears_as_a_file_and_a_response_file_answers_it(program: Program) -> None:
    with_files(program)
    path = outside(program)
    session, approval = ask_and_kill(program, path)
    request = until(lambda: list(escalations(program, session).glob("request-*.json")))[0]
    told = json.loads(request.read_text())
    assert told["escalationId"] == approval
    assert (told["serverName"], told["toolName"], told["arguments"]) == ("filesystem", "read_file", {"path": str(path)})
    assert "read-outside" in told["reason"]
    assert request.stat().st_mode & 0o777 == 0o600
    respond(program, session, approval, '{"decision": "approved"}')
    *_, answer = program.asked("--resume", session)
    assert answer["result"] == "done"
    assert len(program.effects) == 1
    assert list(escalations(program, session).iterdir()) == []
    done = program("approve", approval, fails=True)
    assert "already answered by `response file`: granted at 20" in done.stderr


def waiting_with_files(program: Program) -> tuple[Begun, str, str]:
    with_files(program)
    child, session, approval = ask_and_wait(program, outside(program))
    until((escalations(program, session) / f"request-{approval}.json").exists)
    return child, session, approval


def test_a_running_process_hears_of_a_response_file(program: Program) -> None:
    child, session, approval = waiting_with_files(program)
    respond(program, session, approval, '{"decision":"approved"}')
    out = rest(child)
    assert json.loads(out.splitlines()[-1])["result"] == "done"


@pytest.mark.parametrize("text", ['{"decision": "aproved"}', '{"decision": "approved", "for": "project"}', "x" * 5000])
def test_what_is_not_exactly_an_answer_denies(program: Program, text: str) -> None:
    child, session, approval = waiting_with_files(program)
    respond(program, session, approval, text)
    out = rest(child)
    assert json.loads(out.splitlines()[-1])["because"] == ["denied-by-human"]
    assert program.effects == []


def test_a_half_written_response_denies_nothing_and_approves_nothing(program: Program) -> None:
    child, session, approval = waiting_with_files(program)
    path = escalations(program, session) / f"response-{approval}.json"
    with path.open("w") as file:
        for piece in ('{"decision"', ': "appr', 'oved"}'):
            file.write(piece)
            file.flush()
            # A command of ours that runs to its end gives the other process all the time it needs to look.
            assert [row["id"] for row in program.json("approvals", "list")] == [approval]
    out = rest(child)
    assert json.loads(out.splitlines()[-1])["result"] == "done"


def test_a_response_that_was_closed_too_early_can_still_be_finished(program: Program) -> None:
    child, session, approval = waiting_with_files(program)
    path = escalations(program, session) / f"response-{approval}.json"
    path.write_text('{"decision": "deni')
    assert [row["id"] for row in program.json("approvals", "list")] == [approval]
    path.write_text('{"decision": "denied"}')
    out = rest(child)
    assert json.loads(out.splitlines()[-1])["because"] == ["denied-by-human"]


def test_links_and_pipes_are_no_yes(program: Program) -> None:
    child, session, approval = waiting_with_files(program)
    (program.scratch / "yes.json").write_text('{"decision": "approved"}')
    (escalations(program, session) / f"response-{approval}.json").symlink_to(program.scratch / "yes.json")
    out = rest(child)
    assert json.loads(out.splitlines()[-1])["because"] == ["denied-by-human"]


def test_files_that_belong_to_nothing_are_swept_at_the_start(program: Program) -> None:
    with_files(program)
    session, approval = ask_and_kill(program, outside(program))
    place = escalations(program, session)
    until((place / f"request-{approval}.json").exists)
    for name in ("request-000000.json", "response-000000.json", ".draft"):
        (place / name).write_text("{}")
    program.asked("--resume", session)
    assert [path.name for path in place.iterdir()] == [f"request-{approval}.json"]


def test_an_answer_that_was_there_before_the_question_counts_for_nothing(program: Program) -> None:
    with_files(program)
    session, approval = ask_and_kill(program, outside(program))
    place = escalations(program, session)
    until((place / f"request-{approval}.json").exists)
    (place / f"request-{approval}.json").unlink()
    (place / f"response-{approval}.json").write_text('{"decision": "approved"}')
    program.asked("--resume", session)
    assert [row["id"] for row in program.json("approvals", "list")] == [approval]
    assert program.effects == []


@covers("terminal.card-whole")
def test_a_long_ask_can_be_read_in_full_before_it_is_answered_and_as_it_was_afterwards(program: Program) -> None:
    content = "".join(f"line {number}\n" for number in range(500))
    place = program.scratch / "away.txt"
    wish: dict[str, object] = {"tool": "filesystem.write_file", "arguments": {"path": str(place), "content": content}}
    model = script_of(program.scratch / "long.jsonl", [wish])
    assert program("start", "--model", model, "--on-ask", "park", "go", fails=True).returncode == 3
    (row,) = program.json("approvals", "list")
    listed = program("approvals", "list").stdout
    assert "line 250" not in listed
    assert f"`curtainwall approvals show {row['id']}` shows all of it" in listed
    shown = program("approvals", "show", row["id"]).stdout.splitlines()
    assert [line for line in shown if line.startswith("+")] == [f"+line {number}" for number in range(500)]
    document = program.json("approvals", "show", row["id"])
    assert {key: document[key] for key in row} == row
    assert document["whole"].splitlines() == shown
    program("deny", row["id"])
    settled = program("approvals", "show", row["id"])
    assert settled.stdout.strip() == row["shown"]
    assert program.json("approvals", "show", row["id"])["whole"] == row["shown"]
    assert "already answered by" in settled.stderr
