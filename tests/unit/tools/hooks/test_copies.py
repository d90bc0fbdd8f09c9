"""Copies of programs: exact, made once, and what is said of everything that is not one."""

import json
import os
import stat
from pathlib import Path

import pytest

from curtainwall.tools.hooks import Hook, WorkspaceHooks, copied_programs, exchange_warnings, workspace_hooks
from curtainwall.tools.hooks.copies import Copies
from tests.support.covers import covers
from tests.support.hooking import command, shell


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work" / ".claude").mkdir(parents=True)
    (tmp_path / "work" / "sub").mkdir()
    work = (tmp_path / "work").resolve()
    for name in ("a", "b.sh", "sub/a", ".claude/kept"):
        shell(work / name, "exit 0")
    (work / "plain.py").write_text("pass")
    return work


def bring(work: Path, *lines: str) -> WorkspaceHooks:
    told = {"hooks": {"Stop": [{"hooks": [command(line) for line in lines]}]}}
    (work / ".claude" / "settings.json").write_text(json.dumps(told))
    return workspace_hooks(work, {})


def run_instead(copies: Path, found: WorkspaceHooks, *, is_free: bool = False) -> str | None:
    hook: Hook
    (hook,) = Copies(copies).hooks(found, "Stop", is_free=is_free)
    return None if hook.runs is None else hook.runs.line


def test_a_copy_has_the_name_and_the_bytes_and_may_be_what_the_program_may(tmp_path: Path, work: Path) -> None:
    for line, name, mode in (("./a x", "a", 0o500), ("python3 plain.py x", "plain.py", 0o400)):
        instead = run_instead(tmp_path / "copies", bring(work, line))
        assert instead is not None
        copy = Path(next(word for word in instead.split() if word.startswith("/")))
        assert instead == line.replace("./a" if name == "a" else name, str(copy))
        assert (copy.name, copy.read_bytes()) == (name, (work / name).read_bytes())
        assert stat.S_IMODE(copy.stat().st_mode) == mode
        assert os.listdir(copy.parent) == [name]
        assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700


def test_a_copy_is_made_once_and_again_where_it_is_not_what_it_was(tmp_path: Path, work: Path) -> None:
    found = bring(work, "./a")
    line = run_instead(tmp_path / "copies", found)
    assert line is not None
    before = Path(line).stat().st_ino
    assert run_instead(tmp_path / "copies", found) == line
    assert Path(line).stat().st_ino == before
    Path(line).chmod(0o700)
    Path(line).write_text("torn")
    assert run_instead(tmp_path / "copies", found) == line
    assert Path(line).read_bytes() == (work / "a").read_bytes()


def test_what_is_kept_runs_where_it_lies_unless_the_workspace_is_free(tmp_path: Path, work: Path) -> None:
    found = bring(work, ".claude/kept")
    assert run_instead(tmp_path / "copies", found) is None
    assert run_instead(tmp_path / "copies", found, is_free=True) is not None


@covers("hooks.programs-that-agents-reach-are-told")
@pytest.mark.parametrize(
    ("line", "copied", "told"),
    [
        ("./a", ["a"], []), ("true", [], []), (".claude/kept", [], []), ("python3 plain.py", ["plain.py"], []),
        ("./a; sh b.sh", ["a", "b.sh"], []),
        ("grep x plain.py", [], ["plain.py` is not run as a copy"]), ("sh -c './a x'", [], ["a` is not run as a copy"]),
        ("npx tool ./a", [], ["a` is not run as a copy"]), ("./a --config=plain.py", ["a"], ["plain.py` is not run as a copy"]),
        ("cd sub && ./a", [], ["a` is not run as a copy", "only a shell can tell"]), ("$HOME/x", [], ["only a shell can tell"]),
        ("$(pwd)/a", [], ["only a shell can tell"]), ("./sub/*", [], ["only a shell can tell"]), ("./gone", [], []),
        ("A=$B ./a", ["a"], []),
        ("PATH=sub:$PATH tool", [], ["only a shell can tell"]), ("export PYTHONPATH=sub; tool", [], ["only a shell can tell"]),
    ],
)  # fmt: skip
def test_whatever_could_be_exchanged_is_told(work: Path, line: str, copied: list[str], told: list[str]) -> None:
    found = bring(work, line)
    assert sorted(copied_programs(found)) == [str(work / name) for name in copied]
    sentences = list(exchange_warnings(found))
    assert len(sentences) == len(told), sentences
    for part in told:
        assert any(part in sentence for sentence in sentences), (part, sentences)


@pytest.mark.parametrize("first", ["#!sub/a", "#!{}/sub/a -x", "#! {}/.venv/bin/python", "#!/usr/bin/env -S sub/a"])
def test_an_interpreter_in_the_workspace_is_told(work: Path, first: str) -> None:
    (work / "b.sh").write_text(first.format(work) + "\n")
    (told,) = exchange_warnings(bring(work, "./b.sh"))
    assert "in the workspace, and whatever that loads there: an agent that may edit there can exchange it" in told


def test_another_way_into_the_workspace_leads_to_the_same_programs(tmp_path: Path, work: Path) -> None:
    (tmp_path / "way").symlink_to(work)
    assert copied_programs(bring(work, f"{tmp_path}/way/a")) == {str(work / "a")}
