"""Completion in real shells: the script is sourced, its function called, and keys are pressed at a prompt."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.support.covers import covers
from tests.support.program import Program
from tests.support.tmux import terminal

SOURCE = f"source <({shlex.quote(sys.executable)} -m curtainwall completion bash)"
ANSWER = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _curtainwall_complete "$1"; printf "%s\\n" "${COMPREPLY[@]}"'

ECHO = "cw() { printf '<%s>' \"$@\"; echo .; }"


class Shell(NamedTuple):
    """A shell without anybody's settings, a program `cw` that repeats its words, and how the script is taken in."""

    command: tuple[str, ...]
    says: str
    source: str


SHELLS = {
    "bash": Shell(("bash", "--norc", "-i"), ECHO, SOURCE),
    "zsh": Shell(("zsh", "-f", "-i"), ECHO, f"autoload -Uz compinit; compinit -D -u; {SOURCE.replace(' bash)', ' zsh)')}"),
    "fish": Shell(
        ("fish", "--no-config"),
        "function cw; printf '<%s>' $argv; echo .; end",
        f"{shlex.quote(sys.executable)} -m curtainwall completion fish | source",
    ),
}


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
        (("cw", "start", "--mode", ""), ["plan", "review", "default", "accept-edits", "bypass"]),
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
def test_an_answer_loads_nothing_that_takes_long(program: Program) -> None:
    program.json("start", "--model", "demo", "what is 1 + 1?")
    command = [sys.executable, "-P", "-X", "importtime", "-m", "curtainwall", "--complete", "bash", "--", "cw", "start", "--resume", ""]
    done = subprocess.run(command, capture_output=True, text=True, env=program.environ, check=True, timeout=60)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "curtainwall.cli.completion" in loaded
    assert not loaded & {"asyncio", "pydantic", "typer", "curtainwall.store"}
    assert {name for name in loaded if name.startswith("curtainwall.model.")} <= {"curtainwall.model.lazy_names"}


@covers("cli.completion")
@pytest.mark.usefixtures("tmux")
@pytest.mark.parametrize("shell", SHELLS.values(), ids=SHELLS)
def test_keys_at_a_prompt_complete_words(program: Program, real_part: Callable[[str], str], shell: Shell) -> None:
    if shell.command[0] != "bash":
        real_part(shell.command[0])
    session = program.json("start", "--model", "demo", "what is 1 + 1?")["session"]
    environ = {**program.environ, "INPUTRC": "/dev/null", "HISTFILE": "", "TERM": "xterm"}
    with terminal(shell.command, program.workspace, environ) as screen:
        screen.until(lambda seen: bool(seen.strip()))
        screen.enter(f"{shell.says}; {shell.source}; echo rea''dy")
        screen.until("\nready")
        for typed, heard in (
            ("cw start --mode=pl", "<start><--mode=plan>."),
            ("cw start --model anth", "<start><--model><anthropic:>."),
            ("cw start --model=de", "<start><--model=demo>."),
            (f"cw sessions show {session[:3]}", f"<sessions><show><{session}>."),
        ):
            screen.type(typed)
            screen.press("Tab")
            screen.press("Enter")
            screen.until(heard)
