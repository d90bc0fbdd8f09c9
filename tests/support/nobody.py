"""Confining something as an ordinary user, where the tests themselves run as root."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_SCRIPT = """
import asyncio, json, os, sys
from curtainwall.host import Bounds, Confinement, find_bubblewrap, run_confined

async def main(command, bounds):
    done = await run_confined(["/bin/bash", "-c", command], Confinement(cwd="/tmp", bounds=Bounds(**bounds)))
    return {"code": done.code, "out": done.out.decode(), "err": done.err.decode(), "stopped": done.stopped}

command, bounds = json.loads(sys.argv[1])
# Once as we are, so that every module is loaded before its file can no longer be read.
asyncio.run(main("true", {}))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    os.chdir("/")
print(json.dumps(asyncio.run(main(command, bounds))))
"""


@dataclass(frozen=True)
class Told:
    """How a command of an ordinary user ended."""

    code: int
    out: str
    err: str
    stopped: str | None


def as_nobody(command: str, **bounds: float) -> Told:
    """Run a confined command in a process of its own that belongs to an ordinary user."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps([command, bounds])], capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Told(**json.loads(done.stdout))


@contextmanager
def as_somebody_else() -> Iterator[None]:
    """Look as an ordinary user where the tests run as root, who may look into everything."""
    before = os.geteuid()
    try:
        os.seteuid(before or 65534)
        yield
    finally:
        os.seteuid(before)
