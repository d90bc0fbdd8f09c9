"""The first minute, as `make run` has it: a task, a tour where there is no terminal, and an end at any moment."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.program import Program
from tests.support.repository import ROOT

HOSTNAME = Path("/etc/hostname")


@pytest.fixture
def first_minute(program: Program) -> Path:
    """Copy what `make run` starts, so that its scratch place is the test's own."""
    copy = program.scratch / "clone" / "examples" / "first_minute.py"
    copy.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / "examples" / "first_minute.py", copy)
    return copy


def run_first_minute(program: Program, copy: Path, *task: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, str(copy), *task],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env=program.environ, timeout=180, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done


@covers("start.first-minute")
def test_the_first_task_reads_one_file_and_asks_for_the_other(program: Program, first_minute: Path) -> None:
    done = run_first_minute(program, first_minute, "read notes.txt and tell me what is in /etc/hostname")
    assert "✓ filesystem.read_file notes.txt" in done.stderr
    assert "filesystem.read_file /etc/hostname waits for an answer: `curtainwall approve " in done.stderr
    home = first_minute.parents[1] / ".scratch" / "home"
    assert f"CURTAINWALL_HOME ({program.home}) is not used here: this project has a home of its own, {home}\n" in done.stderr
    assert f" CURTAINWALL_HOME={home}\n" in done.stderr
    program.scratch.joinpath("cw").symlink_to(home)
    approval = program.open_approval()
    (session,) = program.sessions()
    assert f"curtainwall approve {approval}" in done.stderr
    program("approve", approval)
    answer = program("start", "--resume", session["id"]).stdout
    assert "Shopping: milk, eggs, bread." in answer
    assert HOSTNAME.read_text().strip() in answer


@covers("start.first-minute")
def test_without_a_terminal_the_first_minute_is_a_tour(program: Program, first_minute: Path) -> None:
    told = run_first_minute(program, first_minute)
    project = first_minute.parents[1] / ".scratch" / "project"
    for words in (
        f"$ curtainwall start --workspace {project} --model demo 'read notes.txt and search for TODO'\n",
        "notes.txt:2",
        f"I read `/etc/hostname`: {socket.gethostname()}",
        "denied by `protected-path`",
        "cannot follow “compose a symphony”",
        "ok: ",
    ):
        assert words in told.stdout, words
    assert "\x1b" not in told.stdout + told.stderr
    assert not program.home.exists()
    denied = re.search(r"\(protected-path\); `curtainwall (sessions why \S+ \S+)`", told.stderr)
    assert denied, told.stderr
    program.scratch.joinpath("cw").symlink_to(project.parent / "home")
    assert "because of protected-path" in program(*denied[1].split()).stdout, "what is named can be typed"
    assert program.json(*denied[1].split()[:3])["now"] == "deny", "without a call, the last one"


@covers("start.first-minute")
def test_a_first_task_is_taken_as_it_was_written(program: Program, first_minute: Path) -> None:
    done = run_first_minute(program, first_minute, "--model of a ship")
    assert "cannot follow “--model of a ship”" in done.stdout
    task = "say what $5 are in $HOME and it's `date` $(shell echo gone)"
    planned = subprocess.run(
        # It may itself have been started by make.
        ["make", "--dry-run", "--no-print-directory", "--assume-old=.venv/.runs", "run", f"TASK={task}"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert shlex.split(planned.stdout)[-1] == task


def begin_first_minute(program: Program, copy: Path, *task: str) -> subprocess.Popen[str]:
    """Start it at the head of a group of its own, as a shell does."""
    return subprocess.Popen(
        [sys.executable, str(copy), *task],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=program.environ, start_new_session=True,
    )  # fmt: skip


@covers("start.first-minute")
def test_ctrl_c_ends_the_first_minute_with_the_words_of_the_program_alone(bubblewrap: str, program: Program, first_minute: Path) -> None:
    child = begin_first_minute(program, first_minute, "run `sleep 60`")
    assert child.stdout
    assert child.stdout.readline() == "I will run `sleep 60`.\n"
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert (child.returncode, "Traceback" in said) == (130, False), said
    assert "interrupted; what was said so far is kept\n" in said


@covers("start.first-minute")
def test_a_reader_that_has_gone_ends_the_tour(program: Program, first_minute: Path) -> None:
    with begin_first_minute(program, first_minute) as child:
        assert child.stdout
        assert child.stderr
        assert child.stdout.readline().startswith("There is no terminal here")
        child.stdout.close()
        said = child.stderr.read()
    assert (child.returncode, "Traceback" in said) == (141, False), said
