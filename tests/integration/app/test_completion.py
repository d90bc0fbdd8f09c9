"""Completion in a real bash: the script is sourced, its function called, and keys are pressed at a prompt."""

import shlex
import subprocess
import sys
import time

from tests.integration.app.conftest import Program
from tests.support.covers import covers
from tests.support.tmux import terminal
from tests.support.waiting import until

SOURCE = f"source <({shlex.quote(sys.executable)} -m curtainwall completion bash)"
ANSWER = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _curtainwall_complete "$1"; printf "%s\\n" "${COMPREPLY[@]}"'


def completed(program: Program, *words: str) -> tuple[list[str], str]:
    """Return what bash would offer, and what stood on stderr."""
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{SOURCE}; {ANSWER}", "bash", *words],
        capture_output=True, text=True, env=program.environ, cwd=program.workspace, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.split(), done.stderr


@covers("cli.completion")
def test_the_function_of_bash_offers_commands_choices_and_ids(program: Program) -> None:
    session = program.json("start", "--model", "demo", "read /etc/hostname", fails=True)["session"]
    for words, expected in (
        (("curtainwall", "app"), ["approvals", "approve"]),
        (("cw", "start", "--mode", ""), ["plan", "default", "accept-edits", "bypass"]),
        (("cw", "start", "--resume", session[:4]), [session]),
        (("cw", "deny", ""), [program.open_approval()]),
        (("cw", "sessions", "show", "none"), []),
    ):
        assert completed(program, *words) == (expected, ""), words


@covers("cli.completion-is-quiet")
def test_a_directory_in_which_somebody_completes_runs_nothing_of_its_own(program: Program) -> None:
    trap = f"open({str(program.scratch / 'sprung')!r}, 'w')\n"
    (program.workspace / "curtainwall").mkdir()
    for name in ("curtainwall/__init__.py", "json.py", "sqlite3.py"):
        (program.workspace / name).write_text(trap)
    (program.workspace / "cw").write_text(f"#!/bin/sh\ntouch {program.scratch / 'sprung'}\n")
    (program.workspace / "cw").chmod(0o755)
    # The script is made elsewhere, as a profile does.
    made = subprocess.run(
        [sys.executable, "-m", "curtainwall", "completion", "bash"],
        capture_output=True, text=True, env=program.environ, cwd=program.scratch / "user", check=True, timeout=60,
    )  # fmt: skip
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{made.stdout}\n{ANSWER}", "bash", "./cw", "appr"],
        capture_output=True, text=True, env=program.environ, cwd=program.workspace, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["approvals", "approve"]
    assert not (program.scratch / "sprung").exists()


@covers("cli.completion-is-quick")
def test_an_answer_takes_less_than_a_third_of_a_second(program: Program) -> None:
    program.json("start", "--model", "demo", "what is 1 + 1?")
    command = [sys.executable, "-P", "-m", "curtainwall", "--complete", "bash", "--", "cw", "start", "--resume", ""]

    def once() -> float:
        began = time.monotonic()
        subprocess.run(command, capture_output=True, env=program.environ, check=True, timeout=60)
        return time.monotonic() - began

    # Others may be at work on this machine; how quick it can be is what counts.
    until(lambda: once() < 0.3)


@covers("cli.completion")
def test_keys_at_a_prompt_complete_words_that_bash_splits(program: Program, tmux: str) -> None:
    session = program.json("start", "--model", "demo", "what is 1 + 1?")["session"]
    environ = {**program.environ, "INPUTRC": "/dev/null", "HISTFILE": ""}
    with terminal(("bash", "--norc", "-i"), program.workspace, environ) as shell:
        shell.until(lambda seen: bool(seen.strip()))
        shell.enter(f"cw() {{ printf '<%s>' \"$@\"; echo .; }}; {SOURCE}; echo rea''dy")
        shell.until("ready")
        for typed, heard in (
            ("cw start --mode=pl", "<start><--mode=plan>."),
            ("cw start --model anth", "<start><--model><anthropic:>."),
            ("cw start --model=de", "<start><--model=demo>."),
            (f"cw sessions show {session[:3]}", f"<sessions><show><{session}>."),
        ):
            shell.type(typed)
            shell.press("Tab")
            shell.press("Enter")
            shell.until(heard)
