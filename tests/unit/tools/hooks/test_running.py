"""Command hooks as processes: input, output, environment, time limits, and that nothing of them is left."""

import os
import time
from pathlib import Path

import pytest

from curtainwall.facts import Masker
from curtainwall.tools.hooks import CommandHook
from curtainwall.tools.hooks.process import MOST_OUTPUT, HookRun, hook_environment, run_program
from tests.support.covers import covers
from tests.support.hooking import ENVIRON, place, python, shell, wait_until_gone
from tests.support.houses import run


def ran(program: CommandHook | str, told: bytes = b"{}", seconds: float = 20, directory: Path | str = "/", **environ: str) -> HookRun:
    what = CommandHook(program) if isinstance(program, str) else program
    return run(run_program(what, told, {**ENVIRON, "CLAUDE_PROJECT_DIR": "/w", **environ}, str(directory), seconds))


def test_the_event_is_on_standard_input_and_the_answer_on_standard_output() -> None:
    assert ran("cat; echo oh >&2; exit 3", b'{"a": 1}') == HookRun(3, b'{"a": 1}', b"oh\n")


def test_an_event_far_bigger_than_a_pipe_arrives_whole_or_is_not_read_at_all() -> None:
    big = b"x" * 5_000_000
    assert ran("wc -c", big).out.strip() == b"5000000"
    assert ran("exit 0", big) == HookRun()


def test_without_a_shell_arguments_are_what_they_are() -> None:
    assert ran(CommandHook("printf", ("%s|", "a b", "$HOME", "${CLAUDE_PROJECT_DIR}/x"))).out == b"a b|$HOME|/w/x|"


def test_the_program_starts_in_the_given_directory(tmp_path: Path) -> None:
    assert ran("pwd -P", directory=tmp_path).out.decode().strip() == str(tmp_path.resolve())


@pytest.mark.parametrize(
    ("program", "directory", "failure"),
    [
        (CommandHook("no-such-program-anywhere", ()), "/", "it could not be started: no such file or directory"),
        (CommandHook("/etc/passwd", ()), "/", "it could not be started: permission denied"),
        (CommandHook("true", ()), "/no/such/directory", "it could not be started"),
    ],
)
def test_a_program_that_cannot_be_started_is_a_failure(program: CommandHook, directory: str, failure: str) -> None:
    assert ran(program, directory=directory).failure.startswith(failure)


def test_a_missing_program_in_a_shell_line_is_an_exit_code() -> None:
    assert ran("no-such-program-anywhere").code == 127


def test_an_end_by_a_signal_is_a_failure() -> None:
    assert ran("kill -SEGV $$").failure == "it was ended by signal 11"


@covers("hooks.time-limits-end-the-group")
def test_a_time_limit_ends_the_program_and_its_children(tmp_path: Path) -> None:
    line = shell(tmp_path / "slow", f"sleep 600 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/parent; trap '' TERM; sleep 600")
    start = time.monotonic()
    assert ran(line, seconds=3).failure == "it did not end within 3 seconds"
    assert time.monotonic() - start < 40
    for name in ("child", "parent"):
        wait_until_gone(int((tmp_path / name).read_text()))


def test_a_child_that_holds_the_output_open_holds_up_nobody_and_ends(tmp_path: Path) -> None:
    line = shell(tmp_path / "fork", f"sleep 600 & echo $! > {tmp_path}/child; echo said")
    start = time.monotonic()
    assert ran(line) == HookRun(0, b"said\n")
    assert time.monotonic() - start < 40
    wait_until_gone(int((tmp_path / "child").read_text()))


def test_a_child_that_left_the_group_holds_up_nobody_either(tmp_path: Path) -> None:
    line = shell(tmp_path / "fork", f"setsid sh -c 'echo $$ > {tmp_path}/child; exec sleep 600' & echo said")
    try:
        start = time.monotonic()
        assert ran(line).out == b"said\n"
        assert time.monotonic() - start < 40
    finally:
        end = time.monotonic() + 60
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text().strip():
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(int((tmp_path / "child").read_text()), 9)


@covers("hooks.output-is-bounded")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_too_much_output_ends_the_hook(tmp_path: Path, stream: str) -> None:
    line = python(tmp_path / "loud", f"while True: sys.{stream}.write('x' * 65536)")
    start = time.monotonic()
    found = ran(line)
    assert found.failure == f"it printed more than {MOST_OUTPUT} bytes"
    assert len(found.out) + len(found.err) <= MOST_OUTPUT
    assert time.monotonic() - start < 40


def test_output_of_exactly_the_limit_is_whole(tmp_path: Path) -> None:
    found = ran(python(tmp_path / "exact", f"sys.stdout.write('x' * {MOST_OUTPUT})"))
    assert (found.failure, len(found.out)) == ("", MOST_OUTPUT)


def test_no_descriptor_and_no_process_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        ran("echo x")
        ran(CommandHook("no-such-program-anywhere", ()))
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_hook_inherits_no_descriptor_of_ours(tmp_path: Path) -> None:
    secret = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        assert str(tmp_path.resolve()) not in ran("ls -l /proc/self/fd").out.decode()
    finally:
        os.close(secret)


@covers("hooks.environment-without-our-secrets")
def test_the_environment_is_the_users_without_our_secrets() -> None:
    masker = Masker(b"k" * 32, {"deploy": "hunter2-and-more"})
    environ = {"PATH": "/bin", "MINE": "1", "ANTHROPIC_API_KEY": "a", "DSN": "pg://u:hunter2-and-more@h", "GITHUB_TOKEN": "of the user"}
    assert hook_environment(environ, masker, place("/w"), frozenset({"ANTHROPIC_API_KEY"})) == {
        "PATH": "/bin", "MINE": "1", "GITHUB_TOKEN": "of the user", "CLAUDE_PROJECT_DIR": "/w", "CURTAINWALL_SESSION": "s1",
    }  # fmt: skip
