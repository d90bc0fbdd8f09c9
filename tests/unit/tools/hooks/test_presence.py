"""Programs of hooks that can be told to be missing, and those of which nothing can be told."""

import subprocess
from pathlib import Path

import pytest

from curtainwall.tools.hooks import missing_programs
from tests.support.covers import covers
from tests.support.hooking import command, settings, shell


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "my project (1)").mkdir()
    shell(tmp_path / "my project (1)" / "there.sh", "exit 0")
    (tmp_path / "my project (1)" / "plain.py").write_text("pass")
    return tmp_path / "my project (1)"


@pytest.mark.parametrize(
    "line",
    ["./gone.sh", "exec ./gone.sh", "A=1 B=2 ./gone.sh -x", "/nowhere/gone.sh", '"$CLAUDE_PROJECT_DIR"/gone.sh', "gone.sh",
     "python3 gone.py", 'env bash "${CLAUDE_PROJECT_DIR}/gone.sh"', "./plain.py"],
)  # fmt: skip
def test_what_is_missing_is_named(project: Path, line: str) -> None:
    (told,) = missing_programs(settings(project, PreToolUse=[command(line)]).hooks, str(project))
    assert any(name in told for name in ("gone.sh`", "gone.py`", "plain.py`"))


@pytest.mark.parametrize(
    "line",
    ["true", "./there.sh", '"$CLAUDE_PROJECT_DIR"/there.sh --all', "python3 -c 'import json'", 'python3 "$CLAUDE_PROJECT_DIR"/plain.py',
     "cd x && ./gone.sh", "if true; then ./gone.sh; fi", "$HOME/gone.sh", "~ann/gone.sh", "~/*/gone.sh", "bash -s", "npx something",
     "echo hello | cat", "$(gone.sh)", "A=1", "[ -f ./gone.sh ]", "(./gone.sh)", "'", "env -i ./gone.sh"],
)  # fmt: skip
def test_what_is_there_and_what_only_a_shell_could_tell_is_not(project: Path, line: str) -> None:
    assert list(missing_programs(settings(project, PreToolUse=[command(line)]).hooks, str(project))) == []


def test_a_program_in_the_users_home_is_looked_for(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project))
    given = settings(project, PreToolUse=[command("~/there.sh"), command("~/gone.sh"), command("~/gone.sh", args=[])])
    told = list(missing_programs(given.hooks))
    assert [it.partition(",")[0] for it in told] == [f"PreToolUse runs `{project}/gone.sh`", "PreToolUse runs `~/gone.sh`"]
    assert "each call that it stands before is denied" in told[0]


def test_where_no_workspace_is_known_nothing_in_it_is_missing(project: Path) -> None:
    given = settings(project, Stop=[command("$CLAUDE_PROJECT_DIR/gone.sh"), command("${CLAUDE_PROJECT_DIR}/gone.sh", args=[])])
    assert list(missing_programs(given.hooks)) == []


def test_without_a_shell_every_word_means_itself(project: Path) -> None:
    given = settings(project, Stop=[command("${CLAUDE_PROJECT_DIR}/there.sh", args=["$x"]), command("cd", args=["x"])])
    assert [told.partition(",")[0] for told in missing_programs(given.hooks, str(project))] == ["Stop runs `cd`"]


@covers("hooks.missing-programs-are-told")
@pytest.mark.parametrize("line", ["source ./there.sh", "true && [[ -e x ]]", "if true; then source ./there.sh; fi"])
def test_what_only_bash_knows_is_told_where_the_shell_does_not_know_it(project: Path, line: str) -> None:
    told = list(missing_programs(settings(project, PreToolUse=[command(line), command(line, shell="bash")]).hooks, str(project)))
    fails = subprocess.run(["/bin/sh", "-c", line], cwd=project, check=False, capture_output=True, timeout=30).returncode == 127
    assert [sentence.partition(" (")[0] for sentence in told] == (
        [f"PreToolUse runs `{'[[' if '[[' in line else 'source'}`, which `/bin/sh` does not know here"] if fails else []
    )
