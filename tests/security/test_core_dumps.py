"""Memory that holds keys: no crash writes it to a disk, neither ours nor one of what we start."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.hooking import shell
from tests.support.ports import free_port
from tests.support.program import Program, program
from tests.support.serving import health, script_of
from tests.support.waiting import until

__all__ = ["program"]

LIMITED = "Max core file size        0                    0"


def limits_of(pid: int) -> str:
    return Path(f"/proc/{pid}/limits").read_text()


@pytest.fixture(autouse=True)
def dumps_are_wanted() -> Iterator[None]:
    """Have whatever is started here begin with core dumps switched on, as they are on a developer's machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("core dumps are off on this machine for good")
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def begin_serving(program: Program, *before: str) -> tuple[int, int]:
    """Start `serve` from nothing and return its process and its port."""
    port = free_port()
    program.configure(f"[serve]\nstatus-port = {port}\n[web]\nenabled = false\n")
    words = [*before, sys.executable, "-m", "curtainwall", "serve"]
    with Path(os.devnull).open("r+") as nowhere:
        streams = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), number) for number in (0, 1, 2)]
        pid = os.posix_spawnp(words[0], words, program.environ, file_actions=streams)
    return pid, port


@covers("app.no-core-dumps")
def test_a_service_that_crashes_leaves_no_core_dump(program: Program) -> None:
    pid, port = begin_serving(program)
    try:
        until(lambda: health(port).get("pid") == pid, 60)
        limits = limits_of(pid)
    finally:
        os.kill(pid, signal.SIGABRT)
        _, status = os.waitpid(pid, 0)
    assert LIMITED in limits
    assert os.WTERMSIG(status) == signal.SIGABRT
    assert not os.WCOREDUMP(status)


def test_no_other_program_of_the_same_user_reads_the_memory_of_a_service(program: Program) -> None:
    # Root may read everything unless its capabilities are gone: then it is a user like any other.
    ordinary = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs")
    pid, port = begin_serving(program, *ordinary)
    try:
        until(lambda: health(port).get("pid") == pid, 60)
        looks = {
            name: subprocess.run([*ordinary, "cat", f"/proc/{pid}/{name}"], capture_output=True, check=False)
            for name in ("environ", "maps", "stat")
        }
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert looks["stat"].returncode == 0
    assert all(b"Permission denied" in looks[name].stderr for name in ("environ", "maps"))


@covers("app.no-core-dumps")
def test_nothing_that_a_session_starts_can_dump_core(program: Program) -> None:
    seen = program.scratch / "seen"
    hook = shell(program.scratch / "hook", f"ulimit -Sc >> {seen}; ulimit -Hc >> {seen}\n")
    program.configure(f'[[hooks.SessionStart]]\nhooks = [{{type = "command", command = "exec {hook}"}}]\n')
    call = {"tool": "shell.run", "arguments": {"command": "ulimit -Sc; ulimit -Hc"}}
    program("start", "--model", script_of(program.scratch / "script", [call, {"text": "done"}]), "go")
    assert seen.read_text().split() == ["0", "0"]
    (row,) = program.sessions()
    assert '"stdout":"0\\n0\\n"' in program("sessions", "export", row["id"]).stdout.replace(" ", "")
