"""Real processes that start in no time: `python -m MODULE`, forked from a process that has everything imported."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from curtainwall.app.main import COMMANDS
from tests.support.repository import ROOT

LIBRARY = ("tests.support.warm",)
"""What a process loads that opens a session with our own agent."""

_COMMANDS = (*sorted({f"curtainwall.app.commands.{command.module}" for command in COMMANDS.values()}), *LIBRARY)


def curtainwall(
    *words: object, environ: Mapping[str, str] | None = None, given: bytes = b"", place: Path = ROOT, bound: float = 100
) -> subprocess.CompletedProcess[str]:
    """Run a command of `curtainwall` to its end and return what came of it."""
    return forked("curtainwall.__main__", *words, environ=environ, given=given, place=place, imported=_COMMANDS, bound=bound)


def forked(
    module: str,
    *words: object,
    environ: Mapping[str, str] | None = None,
    given: bytes = b"",
    place: Path = ROOT,
    imported: Sequence[str] = (),
    bound: float = 100,
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end and return what came of it; `imported` are modules that it would load only when it needs them."""
    told = list(map(str, words))
    wish = {"module": module, "words": told, "environ": dict(environ or os.environ), "place": str(place), "imported": list(imported)}
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write(given)
        stdin.seek(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.settimeout(bound)
            server.connect(_server())
            socket.send_fds(server, [json.dumps(wish).encode()], [file.fileno() for file in (stdin, out, err)])
            pid = int(server.recv(64))
            try:
                code = int(server.recv(64))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired([module, *told], bound) from None
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess([module, *told], code, out.read().decode(), err.read().decode())


@cache
def _server() -> str:
    """Start the server of this process, when it is first needed, and return where it listens."""
    place = tempfile.TemporaryDirectory(prefix="cw-forks-")
    address = f"{place.name}/socket"
    command = [sys.executable, "-m", "tests.support.fork_server", address]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end() -> None:
        server.communicate(timeout=30)
        place.cleanup()

    atexit.register(end)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return address
