"""Real processes that start in no time: `python -m MODULE`, forked from a process that has everything imported."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TextIO

from curtainwall.cli.main import COMMANDS
from curtainwall.serve.service import SERVICES
from tests.support.repository import ROOT

LIBRARY = ("tests.support.warm",)
"""What a process loads that opens a session with our own agent."""

COMMANDS_OF_OURS = (
    *sorted({f"curtainwall.cli.commands.{command.module}" for command in COMMANDS.values()}),
    *("typer._adapters", "curtainwall.cli.help", "curtainwall.agents.builtin.models.demo"),
    *LIBRARY,
)
"""What `curtainwall` loads, whichever command it is given."""

SERVED = (*SERVICES.values(), "uvicorn", "watchfiles")
"""What `serve` loads besides."""

PROVIDERS = (
    *("genai_prices", "curtainwall.agents.builtin.models.provider"),
    *("pydantic_ai.models.anthropic", "pydantic_ai.providers.anthropic"),
    *("pydantic_ai.models.openai", "pydantic_ai.providers.openai", "pydantic_ai.providers.openai_compatible"),
)
"""What a process loads besides for the models of providers: by itself it takes a second or two for that, each time."""


def curtainwall(
    *words: object,
    environ: Mapping[str, str] | None = None,
    given: bytes = b"",
    place: Path = ROOT,
    bound: float = 100,
    imported: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a command of `curtainwall` to its end and return what came of it."""
    known = (*COMMANDS_OF_OURS, *imported)
    return forked("curtainwall.__main__", *words, environ=environ, given=given, place=place, imported=known, bound=bound)


class Begun:
    """A process at work beside the test, to be asked and told what `subprocess.Popen` is; its pipes are whoever began it's own."""

    stdout: TextIO | None = None
    stderr: TextIO | None = None

    def __init__(self, minder: socket.socket, args: list[str]) -> None:
        self._minder = minder
        self.args = args
        self.pid = int(minder.recv(64))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._minder], [], [], 0)[0]:
            self.returncode = int(self._minder.recv(64))
            self._minder.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            select.select([self._minder], [], [], timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def begun(
    module: str,
    *words: object,
    files: Sequence[int],
    environ: Mapping[str, str] | None = None,
    place: Path = ROOT,
    imported: Sequence[str] = (),
) -> Begun:
    """Begin a module with these files as stdin, stdout and stderr; `imported` are modules that it would load only when it needs them."""
    told = list(map(str, words))
    wish = {"module": module, "words": told, "environ": dict(environ or os.environ), "place": str(place), "imported": list(imported)}
    minder = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    minder.connect(_server())
    socket.send_fds(minder, [json.dumps(wish).encode()], list(files))
    return Begun(minder, [module, *told])


def forked(
    module: str,
    *words: object,
    environ: Mapping[str, str] | None = None,
    given: bytes = b"",
    place: Path = ROOT,
    imported: Sequence[str] = (),
    bound: float = 100,
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end and return what came of it."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write(given)
        stdin.seek(0)
        files = [file.fileno() for file in (stdin, out, err)]
        child = begun(module, *words, files=files, environ=environ, place=place, imported=imported)
        try:
            code = child.wait(bound)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(child.args, code, out.read().decode(), err.read().decode())


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
