"""Real programs in real workers, held by bubblewrap or by Landlock; and a machine where nothing holds them."""

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curtainwall.compose.doctor import examine
from curtainwall.host import ConfinementFailed, WorkerConfinement, confined_worker, find_monty
from curtainwall.host.home import Home
from tests.support.bare_program import run_program, write_program
from tests.support.covers import covers
from tests.support.repository import ROOT
from tests.support.workers import WAYS, way

GETUID, SOCKET, NO_SUCH_CALL = 102, 41, -38


@pytest.fixture(params=WAYS)
def how(request: pytest.FixtureRequest) -> WorkerConfinement:
    return way(request.param)


@pytest.fixture
def monty() -> Path:
    found = find_monty()
    assert found is not None
    return found


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user of this machine can look into."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        yield Path(made)


def outcome_of(binary: Path) -> dict[str, Any]:
    """Return what a process of its own got from its programs."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.monty_process", str(binary), "run"], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@covers("workers.run-programs")
def test_programs_run_and_calls_come_back(how: WorkerConfinement, monty: Path, tmp_path: Path) -> None:
    worker = confined_worker(monty, tmp_path, how=how)
    assert worker.how == how
    assert outcome_of(worker.launcher) == outcome_of(monty) == {"value": 42, "printed": "here\n", "refused": True, "long": 30_300_000}


def test_each_worker_starts_from_anywhere_with_nothing_in_its_environment(how: WorkerConfinement, monty: Path, tmp_path: Path) -> None:
    launcher = confined_worker(monty, tmp_path / "with space and 'quote'", how=how).launcher
    (tmp_path / "ctypes.py").write_text("raise SystemExit(3)")
    (tmp_path / "resource.py").write_text("raise SystemExit(3)")
    hostile = {"PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": "/nowhere", "LD_PRELOAD": "", "LD_LIBRARY_PATH": str(tmp_path)}
    for environment in ({}, hostile):
        done = subprocess.run([launcher, "subprocess"], stdin=subprocess.DEVNULL, env=environment, cwd=tmp_path, check=False, timeout=90)
        assert done.returncode == 0


def test_an_ordinary_user_has_them_too(how: WorkerConfinement, open_directory: Path, tmp_path: Path) -> None:
    program = write_program(open_directory / "program", (GETUID,), (SOCKET, 2, 1, 0))
    words = shlex.split(confined_worker(program, tmp_path, how=how).launcher.read_text().splitlines()[1])
    entry = words.index("-S") + 1
    # Our own interpreter may lie in root's home, where nobody else can start it.
    shutil.copy(words[entry], open_directory / "entry.py")
    command = ["/usr/bin/python3", "-I", "-S", str(open_directory / "entry.py"), *words[entry + 1 : -1]]
    nobody = 65534 if os.geteuid() == 0 else None
    told = run_program(*command, user=nobody)
    assert told.code == 0
    assert told.answers[1] == NO_SUCH_CALL


def test_the_launcher_is_ours_alone_and_left_as_it_is_while_it_is_right(monty: Path, tmp_path: Path) -> None:
    first = confined_worker(monty, tmp_path).launcher
    made = first.stat()
    assert stat.S_IMODE(made.st_mode) == 0o700
    assert confined_worker(monty, tmp_path).launcher.stat().st_ino == made.st_ino
    first.write_text("#!/bin/sh\nexit 3\n")
    assert subprocess.run([confined_worker(monty, tmp_path).launcher, "subprocess"], stdin=subprocess.DEVNULL, check=False).returncode == 0
    first.chmod(0o755)
    assert stat.S_IMODE(confined_worker(monty, tmp_path).launcher.stat().st_mode) == 0o700


@covers("workers.refused-unconfined")
def test_what_no_way_can_hold_is_refused_unless_the_user_allows_it(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    with pytest.raises(
        ConfinementFailed, match=r"^code workers cannot be confined here \(bubblewrap: .*; landlock: .*\); install bubblewrap"
    ):
        confined_worker(script, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
    worker = confined_worker(script, tmp_path / "ours", unconfined_ok=True)
    assert worker.how == "none"
    assert subprocess.run([worker.launcher], check=False).returncode == 0


def test_a_directory_that_takes_no_launcher_is_named_and_no_confinement_is_blamed(monty: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfinementFailed, match=r"^`.*/file/ours` takes no launcher for code workers: Not a directory; make room") as told:
        confined_worker(monty, tmp_path / "file" / "ours")
    assert "bubblewrap" not in str(told.value)


@covers("workers.refused-unconfined")
def test_unconfined_is_not_to_be_had_by_asking_for_it(monty: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfinementFailed, match="only where the user allows it"):
        confined_worker(monty, tmp_path, how="none")


def test_what_can_be_held_is_held_even_if_the_user_would_allow_otherwise(monty: Path, tmp_path: Path) -> None:
    assert confined_worker(monty, tmp_path, unconfined_ok=True).how != "none"


def test_a_program_that_does_not_start_inside_is_not_taken_for_one_that_does(how: WorkerConfinement, tmp_path: Path) -> None:
    with pytest.raises(ConfinementFailed, match=how):
        confined_worker(Path("/bin/false"), tmp_path, how=how)
    with pytest.raises(ConfinementFailed, match="No such file"):
        confined_worker(tmp_path / "nothing", tmp_path, how=how)


def test_doctor_says_what_holds_code_workers(tmp_path: Path) -> None:
    (finding,) = (one for one in examine(Home(tmp_path / "home")) if one.name == "code workers")
    assert finding.status == "ok"
    assert finding.what.startswith(("held by bubblewrap", "held by Landlock"))
    assert list(tmp_path.iterdir()) == []
