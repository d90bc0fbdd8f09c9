"""A file that runs by itself and is saved by the user while a command of the agent's runs: they are told, and can put it back."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.program import Program, Running
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("bubblewrap")

OURS = "export SHOP=open\n"
WAITS = "touch begun; until [ -e go ]; do sleep 0.02; done; echo done"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    where = tmp_path.resolve() / "shop"
    subprocess.run(("git", "init", "-q", where), check=True)
    return where


def scripted(program: Program, command: str) -> tuple[str, ...]:
    script = program.scratch / "work.jsonl"
    calls = ({"tool": "shell.run", "arguments": {"command": command}}, {"text": "that is all"})
    script.write_text("\n".join(map(json.dumps, calls)))
    return ("--model", f"script:{script}", "--mode", "accept-edits")


def begin(program: Program, project: Path, command: str = WAITS) -> Running:
    running = program.begin("start", *scripted(program, command), "--workspace", project, "work")
    until((project / "begun").exists)
    return running


def end(project: Path, running: Running) -> str:
    (project / "go").touch()
    assert running.code() == 0
    return running.err


@covers("app.held-files")
def test_whoever_saves_a_file_while_a_command_runs_is_told_and_can_put_it_back(program: Program, project: Path) -> None:
    running = begin(program, project)
    (project / ".envrc").write_text(OURS)
    told = end(project, running)
    assert not (project / ".envrc").exists()
    assert f"`{project}/.envrc`, now `.envrc.held`; if that was you, `curtainwall sessions held` says how to put it back" in told

    (row,) = program.json("sessions", "held")
    assert (row["path"], row["aside"]) == (f"{project}/.envrc", f"{project}/.envrc.held")
    assert row["session"] == program.sessions()[0]["id"]
    assert f"{project}/.envrc.held" in program("sessions", "held", row["session"]).stdout
    assert f"`{project}/.envrc` is back" in program("sessions", "restore", project / ".envrc").stderr
    assert (project / ".envrc").read_text() == OURS
    assert "nothing is set aside" in program("sessions", "held").stderr


def test_a_git_config_comes_back_in_place_of_the_one_from_before(program: Program, project: Path) -> None:
    before = (project / ".git/config").read_text()
    running = begin(program, project)
    subprocess.run(("git", "-C", project, "remote", "add", "shop", "https://git.example/shop"), check=True)
    told = end(project, running)
    assert "now `config.held` (what was there before is back)" in told
    assert (project / ".git/config").read_text() == before
    assert "what was there instead is" in program("sessions", "restore", project / ".git/config.held").stderr
    assert "git.example" in (project / ".git/config").read_text()
    assert (project / ".git/config.held2").read_text() == before


@covers("app.held-files-are-what-they-were")
def test_what_an_agent_changed_since_is_not_put_back(program: Program, project: Path) -> None:
    running = begin(program, project)
    (project / ".envrc").write_text(OURS)
    end(project, running)
    (project / "begun").unlink()
    again = begin(program, project, "echo evil >> .envrc.held; touch begun")
    assert again.code() == 0
    assert "evil" in (project / ".envrc.held").read_text(), "nobody is kept from that"
    refused = program("sessions", "restore", project / ".envrc", fails=True)
    assert refused.returncode == 1
    assert "was changed since it was set aside; look at it, and rename it yourself" in refused.stderr
    assert not (project / ".envrc").exists()


def test_nothing_is_put_back_over_another_file_nor_while_an_agent_works_there(program: Program, project: Path) -> None:
    running = begin(program, project)
    (project / ".envrc").write_text(OURS)
    end(project, running)
    (project / ".envrc").write_text("another\n")
    assert "there is another" in program("sessions", "restore", project / ".envrc", fails=True).stderr
    (project / ".envrc").unlink()
    for name in ("begun", "go"):
        (project / name).unlink()
    running = begin(program, project)
    assert "works in that project now" in program("sessions", "restore", project / ".envrc", fails=True).stderr
    end(project, running)
    program("sessions", "restore", project / ".envrc")
    assert (project / ".envrc").read_text() == OURS
    assert "nothing is set aside at" in program("sessions", "restore", project / ".envrc", fails=True).stderr


PLANTS = "A=.en; B=vrc; echo evil | tee $A$B; touch begun; sleep 300"


@covers("app.held-files")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_ends_a_task_leaves_nothing_planted(program: Program, project: Path, number: signal.Signals, code: int) -> None:
    running = begin(program, project, PLANTS)
    running.child.send_signal(number)
    assert running.code() == code
    assert not (project / ".envrc").exists()
    assert (project / ".envrc.held").read_text() == "evil\n"
    assert "interrupted" in running.err
    assert not list((program.home / "watched").iterdir())


@covers("app.held-files")
def test_what_was_planted_before_our_process_died_is_set_aside_before_the_next_command(program: Program, project: Path) -> None:
    running = begin(program, project, PLANTS)
    running.kill_everything()
    assert (project / ".envrc").exists()
    (project / "begun").unlink()
    (project / "go").touch()
    told = end(project, begin(program, project))
    assert not (project / ".envrc").exists()
    assert (project / ".envrc.held").read_text() == "evil\n"
    assert f"`{project}/.envrc`, now `.envrc.held`" in told
    assert not list((program.home / "watched").iterdir())


def _started_in(project: Path) -> int:
    """Return the process of the conversation in a project."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if words[1:4] == [b"-m", b"curtainwall", b"start"] and os.fsencode(project) in words:
                return int(path.parent.name)
    raise AssertionError("there is no conversation")


@covers("app.held-files")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_ends_a_conversation_leaves_nothing_planted(
    program: Program, project: Path, number: signal.Signals, code: int
) -> None:
    with program.terminal("start", *scripted(program, PLANTS), "--workspace", project) as screen:
        screen.until("write what you want done")
        screen.enter("work")
        until((project / "begun").exists)
        os.kill(_started_in(project), number)
        assert screen.exit_code() == code
    assert not (project / ".envrc").exists()
    assert (project / ".envrc.held").read_text() == "evil\n"
    assert not list((program.home / "watched").iterdir())
