"""A trusted program of a workspace, exchanged after it was looked at and before it runs: what runs is what was looked at.

Whatever the agent does is done at the seam itself: the user's environment is read after the look and before the start, and this one acts
when it is read.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curtainwall.facts import Masker
from curtainwall.model import Mode, Place, SessionId, Workspace
from curtainwall.tools.hooks import HookSettings, HookSurroundings, HookTrust, UserHooks, workspace_hooks
from tests.support.covers import covers
from tests.support.hook_seams import bring, fired, said, trusted
from tests.support.hooking import ENVIRON, call, command, shell
from tests.support.houses import run

Attack = Callable[[Path, str], None]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work" / ".claude").mkdir(parents=True)
    (tmp_path / "work" / "scripts").mkdir()
    return (tmp_path / "work").resolve()


def replace_it(program: Path, evil: str) -> None:
    fresh = program.with_name("fresh")
    fresh.write_text(evil)
    fresh.chmod(0o755)
    fresh.replace(program)


def write_into_it(program: Path, evil: str) -> None:
    program.write_text(evil)


def move_its_directory(program: Path, evil: str) -> None:
    program.parent.rename(program.parent.with_name("old"))
    program.parent.mkdir()
    replace_it(program, evil)


def make_its_directory_a_link(program: Path, evil: str) -> None:
    other = program.parent.with_name("other")
    other.mkdir()
    replace_it(other / program.name, evil)
    program.parent.rename(program.parent.with_name("old"))
    program.parent.symlink_to("other")


def make_it_a_link(program: Path, evil: str) -> None:
    replace_it(program.with_name("evil"), evil)
    program.unlink()
    program.symlink_to("evil")


ATTACKS = [replace_it, write_into_it, move_its_directory, make_its_directory_a_link, make_it_a_link]
SHELL = "#!/bin/sh\n{}\n"
PYTHON = f"#!{sys.executable} -IS\nimport os, sys\n{{}}\n"
GUARD = {SHELL: "echo the guard, $# >&2; exit 2", PYTHON: "sys.exit(print('the guard,', len(sys.argv) - 1, file=sys.stderr) or 2)"}
EVIL = {SHELL: "touch {}", PYTHON: "open({!r}, 'w')"}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "its-path": (SHELL, command("./scripts/check one two")),
    "in-quotes": (SHELL, command('"$CLAUDE_PROJECT_DIR"/scripts/check one "t w o"')),
    "in-braces": (SHELL, command("${CLAUDE_PROJECT_DIR}/scripts/check one two")),
    "bash": (SHELL, command("scripts/check one two", shell="bash")),
    "no-shell": (SHELL, command("${CLAUDE_PROJECT_DIR}/scripts/check", args=["one", "two"])),
    "no-shell-script": (SHELL, command("sh", args=["scripts/check", "one", "two"])),
    "script": (SHELL, command("sh -u scripts/check one two")),
    "python": (PYTHON, command(f"{sys.executable} -IS scripts/check one two")),
    "shebang": (PYTHON, command("exec scripts/check one two")),
    "a-pipe": (SHELL, command("cat | ./scripts/check one two 2>&1 >/dev/null >&2")),
    "after-another": (SHELL, command('cd "$CLAUDE_PROJECT_DIR" && A=1 ./scripts/check one two')),
    "a-condition": (SHELL, command("if ./scripts/check one two; then exit 0; else exit 2; fi")),
    "sourced": (SHELL, command("set -- one two; . ./scripts/check")),
}


@covers("hooks.what-was-looked-at-runs")
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("form", FORMS)
def test_a_program_exchanged_between_the_look_and_the_run_does_not_run(tmp_path: Path, work: Path, form: str, attack: Attack) -> None:
    language, hook = FORMS[form]
    program, mark = work / "scripts" / "check", tmp_path / "escaped"
    program.write_text(language.format(GUARD[language]))
    program.chmod(0o755)
    bring(work, hook)
    pins = trusted(tmp_path, work)
    reply = fired(pins, work, lambda: attack(program, language.format(EVIL[language].format(str(mark)))))
    assert not mark.exists()
    assert said(reply) in ("the guard, 2", "it gave no reason")
    assert workspace_hooks(work, pins.all()).trust is HookTrust.CHANGED


@pytest.mark.parametrize("way", ["link-in-claude", "second-name"])
def test_a_program_in_claude_that_can_be_reached_from_elsewhere_is_copied_too(tmp_path: Path, work: Path, way: str) -> None:
    program, mark = work / "scripts" / "check", tmp_path / "escaped"
    shell(program, "echo the guard >&2; exit 2")
    if way == "second-name":
        os.link(program, work / ".claude" / "check")
    else:
        (work / ".claude" / "check").symlink_to("../scripts/check")
    bring(work, command(".claude/check"))
    reply = fired(trusted(tmp_path, work), work, lambda: write_into_it(program, f"#!/bin/sh\ntouch {mark}\n"))
    assert said(reply) == "the guard"
    assert not mark.exists()


@pytest.mark.parametrize("free", [{"mode": Mode.BYPASS}, {"own": True}], ids=str)
def test_where_nothing_is_kept_from_an_agent_the_programs_in_claude_are_copied_too(tmp_path: Path, work: Path, free: Any) -> None:
    program, mark = work / ".claude" / "check", tmp_path / "escaped"
    bring(work, command(shell(program, "echo the guard >&2; exit 2")))
    reply = fired(trusted(tmp_path, work), work, lambda: replace_it(program, f"#!/bin/sh\ntouch {mark}\n"), **free)
    assert said(reply) == "the guard"
    assert not mark.exists()


@pytest.mark.parametrize("line", ["./scripts/late", "sh scripts/late", "sh -u scripts/late", "bash late.sh"])
def test_a_program_that_comes_only_after_the_look_does_not_run(tmp_path: Path, work: Path, line: str) -> None:
    mark = tmp_path / "escaped"
    bring(work, command(line))
    program = work / ("late.sh" if "late.sh" in line else "scripts/late")
    assert said(fired(trusted(tmp_path, work), work, lambda: replace_it(program, f"#!/bin/sh\ntouch {mark}\n")))
    assert not mark.exists()


def test_a_directory_that_becomes_the_program_does_not_run(tmp_path: Path, work: Path) -> None:
    mark = tmp_path / "escaped"
    bring(work, command("./scripts/late"))
    pins = trusted(tmp_path, work)
    (work / "scripts" / "late").mkdir()

    def becomes() -> None:
        (work / "scripts" / "late").rmdir()
        replace_it(work / "scripts" / "late", f"#!/bin/sh\ntouch {mark}\n")

    said(fired(pins, work, becomes))
    assert not mark.exists()


def test_a_module_beside_a_program_is_not_what_it_imports(tmp_path: Path, work: Path) -> None:
    mark = tmp_path / "escaped"
    (work / "scripts" / "check.py").write_text("import json, sys\nsys.exit(print('the guard', file=sys.stderr) or 2)")
    (work / "scripts" / "json.py").write_text(f"open({str(mark)!r}, 'w')")
    bring(work, command(f"{sys.executable} scripts/check.py"))
    assert said(fired(trusted(tmp_path, work), work, lambda: None)) == "the guard"
    assert not mark.exists()


def test_an_agent_cannot_have_a_hook_find_its_programs_in_the_workspace(tmp_path: Path, work: Path) -> None:
    mark = tmp_path / "escaped"
    bring(work, command("helper; python3 -c 'import own' 2>/dev/null; exit 2"))
    (work / "bin").mkdir()
    shell(work / "bin" / "helper", f"touch {mark}")
    (work / "lib").mkdir()
    (work / "lib" / "own.py").write_text(f"open({str(mark)!r}, 'w')")
    (tmp_path / "way").symlink_to(work)
    pins = trusted(tmp_path, work)
    path = f"bin:{work}/bin:{tmp_path}/way/bin::{ENVIRON['PATH']}"
    found = {**ENVIRON, "PATH": path, "PYTHONPATH": f"{work}/lib:lib", "BASH_ENV": str(work / "bin" / "helper")}
    hooks = UserHooks(HookSettings(), HookSurroundings(Masker(b"k" * 32), found), pins)
    run(hooks.before_call(call(), Place(session=SessionId("s1"), workspace=Workspace(path=str(work), own=False))))
    assert not mark.exists()


@covers("hooks.what-was-looked-at-runs")
def test_a_copy_that_cannot_be_made_denies(tmp_path: Path, work: Path) -> None:
    bring(work, command(shell(work / "scripts" / "check", "exit 0")))
    pins = trusted(tmp_path, work)
    (tmp_path / "home" / "pinned").write_text("in the way")
    hooks = UserHooks(HookSettings(), HookSurroundings(Masker(b"k" * 32), ENVIRON), pins)
    reply = run(hooks.before_call(call(), Place(session=SessionId("s1"), workspace=Workspace(path=str(work), own=False))))
    assert "could not be copied" in said(reply)
