"""How much processor time commands take from the start of their process, beside the interpreter's own start."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.crowd import write_crowd
from bench.measuring import Figure, Seconds, Side, Target, interleave
from bench.sample import name_of

_PROGRAM = str(Path(sys.executable).parent / "curtainwall")
_ROUNDS, _WARM_UP = 7, 1
# Of twenty sessions, one has an open ask; each `approve` needs one.
_SESSIONS = 20 * (_ROUNDS + _WARM_UP)
_HERE = "127.0.0.1"


async def starting(home: Path) -> list[Figure]:
    """Start real processes, one after the other."""
    workspace, house, port = home / "workspace", home / "home", _free_port()
    workspace.mkdir()
    (workspace / "notes.txt").write_text("bread, milk\n", encoding="utf-8")
    house.mkdir(mode=0o700)
    (house / "config.toml").write_text(f"[web]\nport = {port}\n", encoding="utf-8")
    await write_crowd(house, _SESSIONS)
    # As where it is installed: every module is compiled, which the first round does for those that are not.
    environ = {**os.environ, "CURTAINWALL_HOME": str(house), "PYTHONPYCACHEPREFIX": str(home / "compiled")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    asks = iter([name_of(number) for number in range(0, _SESSIONS, 20)])
    task = [_PROGRAM, "start", "--model", "demo", "--workspace", str(workspace), "--output", "stream-json", "read notes.txt"]
    call = ["filesystem.read_file", '{"path": "~/.ssh/id_rsa"}', "--workspace", str(workspace)]

    def whole(*words: str) -> Side:
        return _side(lambda: _whole([_PROGRAM, *words], environ))

    took = await interleave(
        {
            "bare": _side(lambda: _whole([sys.executable, "-c", "pass"], environ)),
            "--version": whole("--version"),
            "--help": whole("--help"),
            "approvals list": whole("approvals", "list"),
            "sessions list": whole("sessions", "list"),
            "approve": _side(lambda: _whole([_PROGRAM, "approve", next(asks)], environ)),
            "policy explain": whole("policy", "explain", *call),
            "start": _side(lambda: _until_asked(task, environ)),
            "serve": _side(lambda: _until_served(port, environ)),
        },
        rounds=_ROUNDS,
        warm_up=_WARM_UP,
    )
    bare = took["bare"]

    def figure(name: str, target: float, note: str, key: str = "") -> Figure:
        ours = took[key or name]
        return Figure(name, ours.p50, "s", bare.p50, "the interpreter's own start", ours.to(bare), Target(target), note)

    process = "processor time of a whole process"
    return [
        figure("--version", 1.5 * bare.p50 + 0.06, f"{process}; the target is one and a half times the interpreter, and 60 ms"),
        figure("--help", 0.2, process),
        figure("approvals list", 0.3, f"{process}, in a home with {_SESSIONS} sessions"),
        figure("sessions list", 0.3, f"{process}, in a home with {_SESSIONS} sessions"),
        figure("approve", 0.3, f"{process}; the session is open nowhere"),
        figure("policy explain", 0.3, process),
        figure("start to the first request", 0.4, "processor time until a task tells of its first request to `demo`", "start"),
        figure("serve until its first page", 1, "processor time until the page to sign in on has arrived", "serve"),
    ]


def _side(work: Callable[[], Seconds]) -> Side:
    async def run(_: int) -> Sequence[Seconds]:
        return [work()]

    return run


def _whole(words: list[str], environ: Mapping[str, str]) -> Seconds:
    """Return the processor time of a process and of those that it waited for."""
    process = subprocess.Popen(
        words, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process.stderr as errors:
        said = errors.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)}: {said[-2000:]}")
    return usage.ru_utime + usage.ru_stime


def _until_asked(words: list[str], environ: Mapping[str, str]) -> Seconds:
    with subprocess.Popen(words, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        asked = [_used(process.pid) for line in process.stdout if '"ModelRequested"' in line]
    return asked[0]


def _until_served(port: int, environ: Mapping[str, str]) -> Seconds:
    with subprocess.Popen([_PROGRAM, "serve"], env=dict(environ), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "the web is at" in line)
        page = http.client.HTTPConnection(_HERE, port, timeout=60)
        page.request("GET", "/sign-in")
        answer = page.getresponse()
        answer.read()
        took = _used(process.pid)
        page.close()
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    if answer.status != http.HTTPStatus.OK:
        raise RuntimeError(f"the page to sign in on: {answer.status}")
    return took


def _used(pid: int) -> Seconds:
    """Return the processor time that a process has used by now, in all of its threads."""
    # What `clock_getcpuclockid` returns on Linux.
    return time.clock_gettime((~pid << 3) | 2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HERE, 0))
        return int(probe.getsockname()[1])
