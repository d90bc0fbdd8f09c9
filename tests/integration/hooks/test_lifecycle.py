"""SessionStart and SessionEnd across real processes that are really killed; effects are counted by the hooks themselves."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.forks import LIBRARY, forked
from tests.support.hooking import shell, told

SCRIPT = Path(__file__).with_name("lifecycle_process.py")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = (tmp_path / "cw").resolve()
    place.mkdir(mode=0o700)
    (tmp_path / "w").mkdir()
    return place


def configure(home: Path, body: str = "") -> None:
    line = shell(home.parent / "hook", f"{{ cat; echo; }} >> {home.parent}/told\n{body}")
    text = "".join(
        f'[[hooks.{event}]]\nhooks = [{{type = "command", command = "exec {line}"}}]\n' for event in ("SessionStart", "SessionEnd")
    )
    (home / "config.toml").write_text(text)


def process(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked("tests.integration.hooks.lifecycle_process", home, *words, imported=LIBRARY)


def heard(home: Path) -> list[str]:
    return [event["hook_event_name"] for event in told(home.parent / "told")]


@covers("hooks.start-and-end-once")
def test_a_crash_before_the_hook_began_leaves_it_to_the_next_process(home: Path) -> None:
    configure(home)
    died = process(home, "open-and-die")
    assert died.returncode == -9, died.stderr
    assert heard(home) == []
    for _ in range(2):
        assert process(home, "take-up", died.stdout.strip()).returncode == 0
    assert heard(home) == ["SessionStart"]


@covers("hooks.start-and-end-once")
def test_a_crash_while_the_hook_runs_never_runs_it_again(home: Path) -> None:
    configure(home, "kill -9 $PPID")
    died = process(home, "open")
    assert died.returncode == -9, died.stderr
    assert heard(home) == ["SessionStart"]
    configure(home)
    session = died.stdout.strip()
    assert process(home, "take-up", session).returncode == 0
    assert heard(home) == ["SessionStart"]
    assert process(home, "close", session).returncode == 0
    assert process(home, "take-up", session).returncode == 0
    assert heard(home) == ["SessionStart", "SessionEnd"]


def test_many_processes_at_once_run_it_once(home: Path) -> None:
    configure(home)
    session = process(home, "open-and-die").stdout.strip()
    command = [sys.executable, str(SCRIPT), str(home), "take-up", session]
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(4)]
    for each in running:
        _, err = each.communicate(timeout=60)
        assert each.returncode == 0, err
    assert heard(home) == ["SessionStart"]
